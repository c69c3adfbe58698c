package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/domain"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// showDomains writes the libvirt domains of a plan, one after the other, or each to a file in dir.
func showDomains(w io.Writer, dir string, c *spec.Cluster, p *plan.Plan, hosts []topology.Host) error {
	for i := range hosts {
		if a := hosts[i].Arch; a != "" && a != "x86_64" {
			return fmt.Errorf("%s is an %s host: domains are made for x86-64 hosts", hosts[i].Name, text.Clean(a))
		}
	}
	s := backend.Settings{Accel: host.Accel(c.Accel), Region: p.Region}
	if dir == "" {
		return domain.Render(w, p, s)
	}
	files, err := domain.Files(p, s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// All or none: existing files are found before anything is written.
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name+".xml")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already: remove it, or name another --dir", text.Clean(filepath.Join(dir, f.Name+".xml")))
		}
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(dir, f.Name+".xml"), f.XML, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file with mode. It fails if the file exists.
func writeNew(path, content string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: remove it, or name another file", text.Clean(path))
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}
