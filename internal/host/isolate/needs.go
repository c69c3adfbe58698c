package isolate

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// systemLibraries are trees that contain libraries and no user files.
var systemLibraries = []string{"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"}

// Needs returns the files that a program needs to start: itself, its loader, and its libraries as the loader finds
// them with env. Libraries of the system are returned as their directories, so that modules find theirs, others as
// single files.
func Needs(program string, env []string) ([]Bind, error) {
	binds := []Bind{{Path: program, Exec: true}}
	loader, err := loaderOf(program)
	if err != nil || loader == "" {
		return binds, err
	}
	binds = append(binds, Bind{Path: loader, Exec: true}, Bind{Path: "/etc/ld.so.cache", Optional: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, loader, "--list", program)
	cmd.Env, cmd.Dir = env, "/"
	if env == nil {
		cmd.Env = []string{}
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list %s: %w", loader, program, err)
	}
	seen := map[string]bool{}
	for _, line := range bytes.Split(out, []byte("\n")) {
		// "	libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f…)"
		_, to, ok := strings.Cut(string(line), " => ")
		if !ok {
			continue
		}
		path, _, ok := strings.Cut(to, " (0x")
		if !ok || !filepath.IsAbs(path) {
			return nil, fmt.Errorf("%s: its library is missing: %.200s", program, strings.TrimSpace(string(line)))
		}
		path = filepath.Clean(path)
		for _, tree := range systemLibraries {
			// The tree itself is not used: /usr/lib contains more than libraries.
			if dir := filepath.Dir(path); strings.HasPrefix(dir+"/", tree) && (dir+"/" != tree || strings.HasSuffix(dir, "64")) {
				path = dir
				break
			}
		}
		if !seen[path] {
			seen[path] = true
			binds = append(binds, Bind{Path: path})
		}
	}
	return binds, nil
}

// loaderOf returns the program that loads a program's libraries; "": it is static.
func loaderOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return "", fmt.Errorf("%s: %w", program, err)
		}
		loader := string(bytes.TrimRight(b, "\x00"))
		if !filepath.IsAbs(loader) {
			return "", errors.New(program + ": its loader has no absolute path")
		}
		return loader, nil
	}
	return "", nil
}
