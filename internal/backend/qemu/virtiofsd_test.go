package qemu

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/test/nobody"
)

// testVirtiofsd has all options.
var testVirtiofsd = virtiofsd{Path: "/usr/libexec/virtiofsd", Version: Version{1, 13, 2}, ReadOnly: true, NoSubmounts: true, Translates: true, MaxInodes: 524288}

// virtiofsdScript writes a program that answers --version and --help.
func virtiofsdScript(t *testing.T, version, help string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "virtiofsd")
	text := fmt.Sprintf("#!/bin/sh\ncase $1 in --version) echo '%s';; --help) echo '%s';; *) exit 2;; esac\n", version, help)
	if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAskVirtiofsd(t *testing.T) {
	const all = "--readonly --no-announce-submounts"
	for _, x := range []struct{ version, help, want string }{
		{"virtiofsd 1.13.2", all, ""},
		{"virtiofsd 1.5.0", "--announce-submounts", ""},
		{"virtiofsd 1.4.0", "", "virtiofsd 1.4.0 ("},
		// QEMU's own, in C.
		{"virtiofsd version 7.2.22 (Debian 1:7.2+dfsg-7)", "", "virtiofsd 7.2.22 ("},
		{"something else", "", "cannot read its version"},
	} {
		d, err := askVirtiofsd(context.Background(), virtiofsdScript(t, x.version, x.help))
		switch {
		case x.want == "" && (err != nil || d.ReadOnly != (x.help == all) || d.NoSubmounts != (x.help == all)):
			t.Errorf("%s: %+v, %v", x.version, d, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q", x.version, err, x.want)
		case strings.HasSuffix(x.want, " (") && !strings.Contains(err.Error(), ") is too old: nearmetal needs 1.5 or newer: install virtiofsd"):
			t.Errorf("%s: %v", x.version, err)
		}
	}
	if _, err := askVirtiofsd(context.Background(), "/bin/false"); err == nil {
		t.Error("/bin/false is a virtiofsd")
	}
}

// TestVirtiofsdReadOnly: a virtiofsd without --readonly would let root in a VM write to root's host. It is rejected
// for root, and for no other user.
func TestVirtiofsdReadOnly(t *testing.T) {
	t.Setenv("PATH", filepath.Dir(virtiofsdScript(t, "virtiofsd 1.11.1", "--no-announce-submounts"))+":"+os.Getenv("PATH"))
	d, err := findVirtiofsd(context.Background())
	if os.Geteuid() != 0 {
		if err != nil || d.ReadOnly {
			t.Errorf("%+v, %v", d, err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), "cannot keep root in a VM from writing") {
		t.Errorf("%+v, %v", d, err)
	}
	e := backend.Export{Tag: "root", Path: "/", ReadOnly: true}
	if args := strings.Join(d.args(e, false), " "); strings.Contains(args, "--readonly") {
		t.Error(args)
	}
}

func TestVirtiofsdMissing(t *testing.T) {
	old := virtiofsdPaths
	defer func() { virtiofsdPaths = old }()
	dir := t.TempDir()
	virtiofsdPaths = []string{filepath.Join(dir, "virtiofsd")}
	t.Setenv("PATH", dir)
	if _, err := findVirtiofsd(context.Background()); err == nil || !strings.Contains(err.Error(), "install virtiofsd (Debian 13,") {
		t.Errorf("%v", err)
	}
}

// TestOpenFiles: too few descriptors are rejected, with the remedy.
func TestOpenFiles(t *testing.T) {
	for hard, want := range map[uint64]uint64{16384: 16384, 524288: 524288, 1 << 30: 1000000, ^uint64(0): 1000000} {
		if n, err := openFiles(unix.Rlimit{Cur: 1024, Max: hard}); err != nil || n != want {
			t.Errorf("%d: %d, %v", hard, n, err)
		}
	}
	_, err := openFiles(unix.Rlimit{Cur: 1024, Max: 4096})
	if err == nil || !strings.Contains(err.Error(), "virtiofsd may open 4096 files") || !strings.Contains(err.Error(), "limits.d") {
		t.Errorf("%v", err)
	}
}

// TestSocketTo: the socket of a virtiofsd has no name to which a process could connect, and leaves none.
func TestSocketTo(t *testing.T) {
	// The path is longer than a socket's address.
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, "."} {
		listener, end, err := socketTo(d)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		fd, _, err := unix.Accept(int(listener.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		served := os.NewFile(uintptr(fd), "served")
		if _, err := end.WriteString("hello"); err != nil {
			t.Fatal(err)
		}
		end.Close()
		if b, err := io.ReadAll(served); err != nil || string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
		served.Close()
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	nobody.Do(t, func() {
		if _, _, err := socketTo(dir); err == nil {
			t.Error("a socket in a directory of another user's")
		}
	})
}
