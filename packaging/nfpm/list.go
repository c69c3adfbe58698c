package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// family is a family of distributions, with what its packages call things.
type family struct {
	kind    string // nfpm's name
	plugins string // Slurm's folder of plugins
	zsh     string // folder of completions
	licence string // folder for the licence of a package, %s its name
	qemu    []string
	fabric  string
	// slurm are what the plugin of one release needs, between that release and the next one.
	slurm  func(release, next string) []string
	same   string // "= this version"
	files  string // who serves files by virtiofs
	uplink string
}

// Red Hat's QEMU is qemu-kvm-core, Fedora's qemu-system-x86-core. Slurm's own packages, EPEL's and OpenHPC's have
// several names. A host without VMs (a login node, an admin's) needs no QEMU: it is recommended, which apt and dnf
// install by default.
var families = []family{
	{
		kind: "deb", plugins: "/usr/lib/x86_64-linux-gnu/slurm-wlm", zsh: "/usr/share/zsh/vendor-completions", licence: "/usr/share/doc/%s/copyright",
		qemu: []string{"qemu-system-x86 (>= 1:7.2)"}, files: "virtiofsd", uplink: "passt",
		fabric: "libfabric1 (>= 1.17)", same: "%s (= %s-%s)",
		slurm: func(release, next string) []string {
			return []string{fmt.Sprintf("slurm-client (>= %s)", release), fmt.Sprintf("slurm-client (<< %s~)", next)}
		},
	},
	{
		kind: "rpm", plugins: "/usr/lib64/slurm", zsh: "/usr/share/zsh/site-functions", licence: "/usr/share/licenses/%s/LICENSE",
		qemu: []string{"(qemu-kvm-core >= 7.2 or qemu-system-x86-core >= 7.2)"}, files: "virtiofsd", uplink: "passt",
		fabric: "libfabric >= 1.17", same: "%s = %s-%s",
		slurm: func(release, next string) []string {
			return []string{fmt.Sprintf("((slurm >= %[1]s with slurm < %[2]s) or (slurm-ohpc >= %[1]s with slurm-ohpc < %[2]s))", release, next)}
		},
	},
}

// pkg is one package.
type pkg struct {
	name, summary, text           string
	depends, recommends, suggests []string
	conflicts                     []string
	contents                      files.Contents
	scripts                       nfpm.Scripts
}

// packages are those of a family.
func (o *order) packages(f family, releases []string) ([]pkg, error) {
	main := pkg{
		name: "nearmetal", summary: "MPI programs in virtual machines, at the speed of the metal",
		text:       "The command nearmetal, its manual pages, and completion for bash, zsh and fish.",
		recommends: append(append([]string{}, f.qemu...), "nearmetal-fabric", f.files),
		suggests:   []string{f.uplink},
		scripts: nfpm.Scripts{
			PostInstall: filepath.Join(o.files, "scripts/postinstall.sh"),
			PreRemove:   filepath.Join(o.files, "scripts/preremove.sh"),
			PostRemove:  filepath.Join(o.files, "scripts/postremove.sh"),
		},
		contents: files.Contents{
			{Source: filepath.Join(o.files, "files/limits.conf"), Destination: "/etc/security/limits.d/50-nearmetal.conf", Type: files.TypeConfigNoReplace},
			{Source: filepath.Join(o.files, "files/sysusers.conf"), Destination: "/usr/lib/sysusers.d/nearmetal.conf"},
			{Source: filepath.Join(o.files, "files/tmpfiles.conf"), Destination: "/usr/lib/tmpfiles.d/nearmetal.conf"},
		},
	}
	fabric := pkg{
		name: "nearmetal-fabric", summary: "libfabric provider over memory that virtual machines share",
		text:    "The provider ivshmem, a library that MPI programs preload for windows in shared memory, and their headers.",
		depends: []string{f.fabric},
	}
	vsphere := pkg{
		name: "nearmetal-vsphere", summary: "nearmetal with VMware vSphere as a backend",
		text:    "The command nearmetal-vsphere: nearmetal, and VMs on ESXi hosts of a vCenter. It holds VMware's client library.",
		depends: []string{fmt.Sprintf(f.same, "nearmetal", o.version, o.release)},
	}
	if err := o.sort(f, &main, &fabric, &vsphere); err != nil {
		return nil, err
	}
	list := []pkg{main, fabric, vsphere}
	for _, dir := range releases {
		p, err := o.slurmPackage(f, dir)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	for i := range list {
		more, err := needs(f, list[i].contents)
		if err != nil {
			return nil, err
		}
		list[i].depends = append(more, list[i].depends...)
		at := fmt.Sprintf(f.licence, list[i].name)
		list[i].contents = append(list[i].contents, &files.Content{
			Source: filepath.Join(o.files, "../LICENSE"), Destination: at, FileInfo: &files.ContentFileInfo{Mode: 0o644},
		})
		if dir := filepath.Dir(at); !strings.HasPrefix(dir, "/usr/share/doc/") {
			list[i].contents = append(list[i].contents, &files.Content{Destination: dir, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}})
		}
	}
	return list, nil
}

// fabricTrees are what of an installation is the provider's; all else is nearmetal's.
var fabricTrees = []string{"/usr/lib/nearmetal/", "/usr/include/", "/usr/share/pkgconfig/", "/usr/share/man/man7/"}

// vsphereProgram is alone in its package.
const vsphereProgram = "/usr/bin/nearmetal-vsphere"

// sort puts the files of the installation into their packages.
func (o *order) sort(f family, main, fabric, vsphere *pkg) error {
	return filepath.WalkDir(o.stage, func(path string, d fs.DirEntry, err error) error {
		at := strings.TrimPrefix(path, filepath.Clean(o.stage))
		if err != nil || d.IsDir() && !strings.Contains(at, "/nearmetal") {
			return err // a folder that others use, too
		}
		c := &files.Content{Source: path, Destination: strings.Replace(at, "/usr/share/zsh/site-functions", f.zsh, 1)}
		switch {
		case d.IsDir():
			c.Source, c.Type, c.FileInfo = "", files.TypeDir, &files.ContentFileInfo{Mode: 0o755}
		case d.Type()&fs.ModeSymlink != 0:
			if c.Source, err = os.Readlink(path); err != nil {
				return err
			}
			c.Type = files.TypeSymlink
		default:
			info, err := d.Info()
			if err != nil {
				return err
			}
			c.FileInfo = &files.ContentFileInfo{Mode: info.Mode().Perm()}
		}
		to := main
		for _, tree := range fabricTrees {
			if strings.HasPrefix(at+"/", tree) {
				to = fabric
			}
		}
		if at == vsphereProgram {
			to = vsphere
		}
		to.contents = append(to.contents, c)
		return nil
	})
}

// slurmPackage is the package of the plugin for the release of Slurm that dir is named by.
func (o *order) slurmPackage(f family, dir string) (pkg, error) {
	release := filepath.Base(dir)
	next, err := nextRelease(release)
	if err != nil {
		return pkg{}, err
	}
	p := pkg{
		name: "nearmetal-slurm-" + release, summary: "srun --vm: nearmetal's plugin for Slurm " + release,
		text:    "The SPANK plugin. Slurm loads it when plugstack.conf names it: nearmetal slurm example prints the lines.",
		depends: append([]string{fmt.Sprintf(f.same, "nearmetal", o.version, o.release)}, f.slurm(release, next)...),
	}
	p.contents = files.Contents{{
		Source: filepath.Join(dir, "spank_nearmetal.so"), Destination: f.plugins + "/spank_nearmetal.so",
		FileInfo: &files.ContentFileInfo{Mode: 0o644},
	}}
	return p, nil
}

// nextRelease is a version that is above every version of a release YY.MM, and not above those of the next.
func nextRelease(release string) (string, error) {
	year, month, ok := strings.Cut(release, ".")
	n, err := strconv.Atoi(month)
	if !ok || err != nil {
		return "", fmt.Errorf("%s is not a release of Slurm", release)
	}
	return fmt.Sprintf("%s.%02d", year, n+1), nil
}
