package rootimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// programs are what unpacks each kind, with the packages that have them. Of those in one entry the first that is here is taken.
var programs = map[Kind][][]string{
	Squashfs: {{"unsquashfs"}},
	SIF:      {{"apptainer", "singularity"}},
	QCOW2:    {{"virt-tar-out"}, {"tar"}},
	OCI:      {{"umoci"}},
	Archive:  {{"skopeo"}, {"umoci"}},
}

var packages = map[string]string{
	"unsquashfs": "the package squashfs-tools", "apptainer": "Apptainer (apptainer.org; EPEL has the package apptainer)",
	"virt-tar-out": "the package guestfs-tools (libguestfs-tools on Debian)", "tar": "tar", "umoci": "umoci (Debian has the package)", "skopeo": "the package skopeo",
}

// first is the first program that is here.
func first(names []string) string {
	for _, n := range names {
		if _, err := exec.LookPath(n); err == nil {
			return n
		}
	}
	return ""
}

// needs says what is missing to unpack the image.
func (i *Image) needs() error {
	for _, names := range programs[i.Kind] {
		if first(names) == "" {
			return fmt.Errorf("%s is missing, which unpacks this %s: install %s, or unpack it yourself and name the folder", names[0], i.Kind, packages[names[0]])
		}
	}
	return nil
}

// unpack returns the root's folder, below work.
func (i *Image) unpack(ctx context.Context, work string) (string, error) {
	root := filepath.Join(work, "root")
	switch i.Kind {
	case Squashfs:
		// What only root may make, such as devices, is left out for a user, which unsquashfs says by 2.
		err := run(ctx, "unsquashfs", "-no-progress", "-no-xattrs", "-d", root, i.Path)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 2 && os.Geteuid() != 0 {
			err = nil
		}
		return root, err
	case SIF:
		return root, run(ctx, first(programs[SIF][0]), "build", "--sandbox", root, i.Path)
	case QCOW2:
		if err := os.Mkdir(root, 0o755); err != nil {
			return "", err
		}
		all := filepath.Join(work, "root.tar")
		if err := run(ctx, "virt-tar-out", "-a", i.Path, "/", all); err != nil {
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

// umoci unpacks an image of that layout. What it has besides the root stays in work.
func (i *Image) umoci(ctx context.Context, work, layout, tag string) (string, error) {
	bundle := filepath.Join(work, "bundle")
	args := []string{"unpack", "--image", layout + ":" + tag, bundle}
	if os.Geteuid() != 0 {
		args = append([]string{"unpack", "--rootless"}, args[1:]...)
	}
	return filepath.Join(bundle, "rootfs"), run(ctx, "umoci", args...)
}

// mostEntries bounds how far an archive is looked through.
const mostEntries = 100000

// archiveKind says for skopeo what an archive is.
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
	return "", errors.New("it is a tar archive, and no OCI image in one: unpack it, and name the folder")
}

// run runs a program; its error has the program's last line.
func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
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

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > 8192 {
		t.b = append([]byte(nil), t.b[len(t.b)-4096:]...)
	}
	return len(b), nil
}

func (t *tail) last() string {
	lines := strings.FieldsFunc(string(bytes.TrimSpace(t.b)), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.TrimSpace(lines[len(lines)-1]))
}
