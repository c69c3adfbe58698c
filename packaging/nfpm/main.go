// Command packages makes nearmetal's packages for Debian's and Red Hat's families (.deb and .rpm) out of what make
// install has put below a folder. The same files and the same time always have the same packages.
//
//	go -C packaging/nfpm run . -version V -time SECONDS -root STAGE -slurm PLUGINS -out DIR
//
// STAGE is the DESTDIR of an installation with PREFIX=/usr. PLUGINS has a folder for each release of Slurm, such as
// 22.05, with its spank_nearmetal.so. scripts/packages.sh makes both.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// order is what the command line asks for.
type order struct {
	version string
	release string    // of the package
	time    time.Time // of all files
	stage   string
	plugins string
	files   string // packaging/
	out     string
}

func main() {
	var o order
	var seconds int64
	flag.StringVar(&o.version, "version", "", "nearmetal's version")
	flag.StringVar(&o.release, "release", "1", "the package's release of that version")
	flag.Int64Var(&seconds, "time", 0, "the time of all files, in seconds since 1970")
	flag.StringVar(&o.stage, "root", "", "folder with an installation below /usr")
	flag.StringVar(&o.plugins, "slurm", "", "folder with a folder for each release of Slurm")
	flag.StringVar(&o.files, "files", "..", "folder with scripts and files of the packages'")
	flag.StringVar(&o.out, "out", "", "folder for the packages")
	flag.Parse()
	if o.version == "" || o.stage == "" || o.plugins == "" || o.out == "" {
		fmt.Fprintln(os.Stderr, "packages: -version, -root, -slurm and -out are needed")
		os.Exit(2)
	}
	o.time = time.Unix(seconds, 0).UTC()
	if err := o.make(); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// make writes all packages, and prints their paths.
func (o *order) make() error {
	releases, err := filepath.Glob(filepath.Join(o.plugins, "[0-9][0-9].[0-9][0-9]"))
	if err != nil {
		return err
	}
	for _, f := range families {
		list, err := o.packages(f, releases)
		if err != nil {
			return err
		}
		for _, p := range list {
			path, err := o.write(f, p)
			if err != nil {
				return fmt.Errorf("%s (%s): %w", p.name, f.kind, err)
			}
			fmt.Println(path)
		}
	}
	return nil
}

// write writes one package.
func (o *order) write(f family, p pkg) (path string, err error) {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: p.name, Arch: "amd64", Platform: "linux", Version: o.version, Release: o.release,
		Section: "net", Priority: "optional", MTime: o.time,
		Maintainer: "nearmetal maintainers <maintainers@nearmetal.invalid>", Vendor: "nearmetal",
		Description: p.summary + "\n" + p.text, License: "Apache-2.0", DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Depends: p.depends, Recommends: p.recommends, Suggests: p.suggests, Conflicts: p.conflicts,
			Scripts: p.scripts, Contents: p.contents,
			RPM: nfpm.RPM{Group: "System Environment/Base", Summary: p.summary},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	})
	for _, c := range info.Contents {
		if c.FileInfo == nil {
			c.FileInfo = &files.ContentFileInfo{}
		}
		c.FileInfo.MTime, c.FileInfo.Owner, c.FileInfo.Group = o.time, "root", "root"
	}
	packager, err := nfpm.Get(f.kind)
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(info, f.kind); err != nil {
		return "", err
	}
	path = filepath.Join(o.out, packager.ConventionalFileName(info))
	w, err := os.Create(path + ".new")
	if err != nil {
		return "", err
	}
	if err := errors.Join(packager.Package(info, w), w.Close()); err != nil {
		os.Remove(path + ".new")
		return "", err
	}
	return path, os.Rename(path+".new", path)
}
