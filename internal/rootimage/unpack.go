package rootimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"nearmetal/internal/host"
	"nearmetal/internal/text"
)

// programs are the programs that unpack each kind.
var programs = map[Kind][]string{
	Squashfs: {"unsquashfs"},
	SIF:      {"unsquashfs"},
	QCOW2:    {"virt-tar-out", "tar"},
	OCI:      {"umoci"},
	Archive:  {"skopeo", "umoci"},
}

// packages are the packages of these programs.
var packages = map[string]string{
	"unsquashfs":   "the package squashfs-tools",
	"virt-tar-out": "guestfish, of libguestfs", "tar": "tar", "umoci": "umoci (Debian has the package)", "skopeo": "the package skopeo",
}

// needs returns an error for a program that is missing to unpack the image.
func (i *Image) needs() error {
	for _, p := range programs[i.Kind] {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is missing, which unpacks this %s: install %s, or unpack it yourself and name the directory", p, i.Kind, packages[p])
		}
	}
	return nil
}

// unpack returns the root's directory, below work.
func (i *Image) unpack(ctx context.Context, work string) (string, error) {
	root := filepath.Join(work, "root")
	switch i.Kind {
	case Squashfs:
		return root, unsquash(ctx, i.Path, 0, root)
	case SIF:
		offset, err := sifRoot(i.Path)
		if err != nil {
			return "", err
		}
		return root, unsquash(ctx, i.Path, offset, root)
	case QCOW2:
		if err := os.Mkdir(root, 0o755); err != nil {
			return "", err
		}
		all := filepath.Join(work, "root.tar")
		if err := runWith(ctx, guestfs(), "virt-tar-out", "-a", i.Path, "/", all); err != nil {
			return "", err
		}
		return root, run(ctx, "tar", "-x", "-f", all, "-C", root, "--exclude=./dev/*")
	case Archive:
		transport, err := archiveKind(i.Path)
		if err != nil {
			return "", err
		}
		layout := filepath.Join(work, "layout")
		if err := run(ctx, "skopeo", "--insecure-policy", "copy", "-q", transport+":"+i.Path, "oci:"+layout+":nearmetal"); err != nil {
			return "", err
		}
		return i.umoci(ctx, work, layout, "nearmetal")
	}
	t, err := tag(i.Path, i.Tag)
	if err != nil {
		return "", err
	}
	return i.umoci(ctx, work, i.Path, t)
}

// unsquash unpacks the squashfs that begins at an offset of a file.
func unsquash(ctx context.Context, path string, offset int64, root string) error {
	args := []string{"-no-progress", "-no-xattrs", "-d", root}
	if offset > 0 {
		args = append(args, "-o", strconv.FormatInt(offset, 10))
	}
	err := run(ctx, "unsquashfs", append(args, path)...)
	// Files that only root may make, such as devices, are skipped for a user; unsquashfs reports that with exit
	// status 2.
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 && os.Geteuid() != 0 {
		return nil
	}
	return err
}

// umoci unpacks an image with that layout. Its other files stay in work.
func (i *Image) umoci(ctx context.Context, work, layout, tag string) (string, error) {
	bundle := filepath.Join(work, "bundle")
	args := []string{"unpack", "--image", layout + ":" + tag, bundle}
	if os.Geteuid() != 0 {
		args = append([]string{"unpack", "--rootless"}, args[1:]...)
	}
	return filepath.Join(bundle, "rootfs"), run(ctx, "umoci", args...)
}

// mostEntries bounds the search through an archive.
const mostEntries = 100000

// archiveKind returns skopeo's name for the format of an archive.
func archiveKind(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	docker := false
	t := tar.NewReader(f)
	for range mostEntries {
		h, err := t.Next()
		if err != nil {
			break
		}
		switch filepath.Clean(h.Name) {
		case layoutFile:
			return "oci-archive", nil
		case "manifest.json":
			docker = true
		}
	}
	if docker {
		return "docker-archive", nil
	}
	return "", errors.New("it is a tar archive, and no OCI image in one: unpack it, and name the directory")
}

// guestfs returns the variables that libguestfs needs: it uses any /dev/kvm, and fails if that does not work.
func guestfs() []string {
	const settings = "LIBGUESTFS_BACKEND_SETTINGS"
	if _, set := os.LookupEnv(settings); set {
		return nil
	}
	if accel, _, err := host.DetectAccel("auto"); err != nil || accel == host.KVM {
		return nil
	}
	return []string{settings + "=force_tcg"}
}

// run runs a program; its error has the program's last line.
func run(ctx context.Context, name string, args ...string) error {
	return runWith(ctx, nil, name, args...)
}

// runWith runs a program with additional environment variables.
func runWith(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	cmd.WaitDelay = 10 * time.Second
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if line := said.last(); line != "" {
		return fmt.Errorf("%s: %.300s (%w)", name, line, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// tail keeps the end of the written bytes.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > 8192 {
		t.b = append([]byte(nil), t.b[len(t.b)-4096:]...)
	}
	return len(b), nil
}

func (t *tail) last() string { return text.LastLine(string(t.b)) }
