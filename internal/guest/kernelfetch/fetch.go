// Package kernelfetch extracts a kernel that the user cannot read in /boot (Ubuntu's are 0600) from the
// distribution's own package, with the distribution's own client and without root. The client verifies the package by
// the signed lists of the system; this package compares its digest with those lists again, and the kernel's version
// with the requested one.
package kernelfetch

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/guest/image"
	"nearmetal/internal/host/cache"
)

// Bounds: a Debian package has 70 MB, a kernel 15 MB.
const (
	mostKernel  = 256 << 20
	mostPackage = 1 << 30
	mostSaid    = 1 << 20
)

// timeout bounds the whole operation, most of which is the download.
const timeout = 10 * time.Minute

// Fetched describes the kernel that Fetch has put into the cache.
type Fetched struct {
	Version string // of the kernel
	Package string // NAME=VERSION, as in the archive
}

// Fetch extracts the kernel of that version for the installed system, and keeps it in d.
func Fetch(ctx context.Context, d *cache.Dir, version string) (Fetched, error) {
	if strings.ContainsAny(version, "/ \t\n") || strings.HasPrefix(version, "-") || version == "" {
		return Fetched{}, fmt.Errorf("%q is not a kernel version", version)
	}
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-query", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return Fetched{}, fmt.Errorf("a kernel can be fetched by apt alone, and here is no %s: ask the administrator for chmod 0644 /boot/vmlinuz-%s", program, version)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pkg, err := owner(ctx, version)
	if err != nil {
		return Fetched{}, err
	}
	digest, err := digestOf(ctx, pkg)
	if err != nil {
		return Fetched{}, err
	}
	dir, err := os.MkdirTemp(d.Path(), "fetch-")
	if err != nil {
		return Fetched{}, err
	}
	defer os.RemoveAll(dir)
	get := command(ctx, "apt-get", "-q", "-o", "APT::Get::AllowUnauthenticated=false", "download", pkg)
	get.Dir = dir
	if _, err := output(get); err != nil {
		return Fetched{}, fmt.Errorf("%w (apt-get update, by root, if the archive has a newer version by now)", err)
	}
	deb, err := theOnly(dir)
	if err != nil {
		return Fetched{}, err
	}
	if err := verify(deb, digest); err != nil {
		return Fetched{}, fmt.Errorf("%s: %w", pkg, err)
	}
	kernel, err := unpack(ctx, deb, "boot/vmlinuz-"+version)
	if err == nil {
		err = image.Keep(d, version, kernel)
	}
	if err != nil {
		return Fetched{}, fmt.Errorf("%s: %w", pkg, err)
	}
	return Fetched{version, pkg}, nil
}

// owner returns the package that installed a kernel, as NAME=VERSION.
func owner(ctx context.Context, version string) (string, error) {
	path := "/boot/vmlinuz-" + version
	out, err := output(command(ctx, "dpkg-query", "-S", path))
	if err != nil {
		return "", fmt.Errorf("kernel %s is not from an installed package (dpkg-query -S %s)", version, path)
	}
	name, _, ok := strings.Cut(strings.SplitN(out, "\n", 2)[0], ": ")
	if !ok || strings.ContainsAny(name, ", ") || strings.HasPrefix(name, "-") {
		return "", fmt.Errorf("dpkg-query -S %s: %q is not understood", path, out)
	}
	installed, err := output(command(ctx, "dpkg-query", "-W", "-f", "${Version}", name))
	if err != nil {
		return "", err
	}
	return name + "=" + installed, nil
}

// digestOf returns the SHA-256 of a package from the system's lists.
func digestOf(ctx context.Context, pkg string) (string, error) {
	out, err := output(command(ctx, "apt-cache", "show", pkg))
	if err != nil {
		return "", fmt.Errorf("%w (apt-get update, by root, if the archive has a newer version by now)", err)
	}
	for _, line := range strings.Split(out, "\n") {
		if v, ok := strings.CutPrefix(line, "SHA256: "); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("the lists of apt have no digest of %s: it is in no archive any more, or apt-get update is missing", pkg)
}

// theOnly returns the only file of a directory.
func theOnly(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(list) != 1 || !list[0].Type().IsRegular() {
		return "", fmt.Errorf("apt-get download left %d files", len(list))
	}
	return filepath.Join(dir, list[0].Name()), nil
}

func verify(deb, digest string) error {
	f, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, mostPackage+1)); err != nil {
		return err
	} else if n > mostPackage {
		return errors.New("the package is too large")
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("its SHA-256 is %s, not %s as the lists of apt say", got, digest)
	}
	return nil
}

// unpack returns a file of a package.
func unpack(ctx context.Context, deb, name string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := command(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	defer func() { cancel(); cmd.Wait() }()
	t := tar.NewReader(out)
	for {
		h, err := t.Next()
		if err != nil {
			return nil, fmt.Errorf("it has no file %s", name)
		}
		if strings.TrimPrefix(filepath.Clean(h.Name), "/") != name || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > mostKernel {
			return nil, fmt.Errorf("%s has %d bytes", name, h.Size)
		}
		b := make([]byte, h.Size)
		_, err = io.ReadFull(t, b)
		return b, err
	}
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns a command's output. Its error has the command's last line.
func output(cmd *exec.Cmd) (string, error) {
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if last := strings.TrimPrefix(strings.TrimPrefix(lines[len(lines)-1], "E: "), cmd.Args[0]+": "); last != "" {
			return "", fmt.Errorf("%s: %.200s", cmd.Args[0], last)
		}
		return "", fmt.Errorf("%s: %w", cmd.Args[0], err)
	}
	return out.String(), nil
}

// limited keeps the first mostSaid bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	l.Buffer.Write(b[:min(len(b), mostSaid-l.Len())])
	return len(b), nil
}
