// Package hook creates a region shared by the VMs that an unpatched OpenStack Nova starts on this host. A libvirt
// hook (Hook) creates the region before the first VM of a group starts, and removes it after the last. Another
// process (Plug) plugs it into a VM that has just started, because a hook must not call libvirtd.
//
// A region belongs to one project, one group of servers and one size. The package uses only information that Nova
// writes into a domain's XML. The record of a region is one file in State; its memory is a file that only root can
// access.
package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"sort"
	"time"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
)

// Paths are the locations of files on this host. Tests use others.
type Paths struct {
	Config   string // the site's configuration, written by Install
	HookFile string // the hook's program
	State    string // records of the existing regions; removed by a reboot, as the regions are
	Memory   string // memory of the regions: a directory owned by root below Shared
	Shared   string // directory where libvirt looks up memory by name
	Journal  string // journal of the changes to this host
}

// Host has the paths of this host.
var Host = Paths{
	Config:   "/etc/nearmetal/openstack-region.json",
	HookFile: "/etc/libvirt/hooks/qemu.d/nearmetal-region",
	State:    "/run/nearmetal/openstack-region",
	Memory:   "/dev/shm/nearmetal-openstack",
	Shared:   "/dev/shm",
	Journal:  "/var/lib/nearmetal",
}

// ExtraSpec is the extra spec of a flavor with the region's size: nearmetal:region=64MiB. Nova writes extra specs
// into the domain's XML from its releases of late 2025 on.
const ExtraSpec = openstack.RegionSpec

// Config is an administrator's configuration of this host.
type Config struct {
	Version int    `json:"version"` // 1
	Program string `json:"program"` // absolute path of nearmetal
	Connect string `json:"connect"` // libvirtd's address, as accepted by virsh -c
	// Installed is when the hook was installed: a libvirtd that was started earlier does not run it.
	Installed time.Time `json:"installed"`
	// Flavors maps names of flavors to sizes of regions, for a Nova that writes no extra specs.
	Flavors map[string]spec.Size `json:"flavors,omitempty"`
}

const (
	configVersion = 1
	configMax     = 1 << 20 // bytes
	flavorsMax    = 10000
)

var flavorForm = lazyregexp.New(`^[^\x00-\x1f\x7f"<>&]{1,255}$`)

// CheckSize rejects sizes that no region can have: the size of its device is a power of two.
func CheckSize(n spec.Size) error {
	if bits.OnesCount64(uint64(n)) != 1 || uint64(n) < region.MinBytes || uint64(n) > region.MaxBytes {
		return fmt.Errorf("a region of %s: a power of two, at least 1MiB", n)
	}
	return nil
}

// Check rejects a configuration that would not work.
func (c *Config) Check() error {
	switch {
	case c.Version != configVersion:
		return fmt.Errorf("version %d: this nearmetal reads version %d", c.Version, configVersion)
	case !filepath.IsAbs(c.Program) || filepath.Clean(c.Program) != c.Program:
		return fmt.Errorf("program %.80q is not an absolute path", c.Program)
	case len(c.Flavors) > flavorsMax:
		return fmt.Errorf("%d flavors: at most %d", len(c.Flavors), flavorsMax)
	}
	for name, size := range c.Flavors {
		if !flavorForm().MatchString(name) {
			return fmt.Errorf("%.80q cannot be the name of a flavor", name)
		}
		if err := CheckSize(size); err != nil {
			return fmt.Errorf("flavor %s: %w", name, err)
		}
	}
	return nil
}

// ReadConfig reads the file that Install wrote. The error is fs.ErrNotExist if the file does not exist.
func (p Paths) ReadConfig() (*Config, error) {
	f, err := os.Open(p.Config)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &Config{}
	d := json.NewDecoder(io.LimitReader(f, configMax))
	d.DisallowUnknownFields()
	if err = d.Decode(c); err == nil {
		err = c.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Config, err)
	}
	return c, nil
}

// size returns the size in bytes of the region that a flavor promises; 0: none.
func (c *Config) size(d *Domain) (spec.Size, error) {
	if s, ok := d.Specs[ExtraSpec]; ok {
		n, err := spec.ParseSize(s)
		if err == nil {
			err = CheckSize(n)
		}
		if err != nil {
			return 0, fmt.Errorf("flavor %.80q: %s: %w", d.Flavor, ExtraSpec, err)
		}
		return n, nil
	}
	return c.Flavors[d.Flavor], nil
}

// List returns the existing regions, by project and group. It changes nothing.
func (p Paths) List() ([]*Region, error) {
	files, err := os.ReadDir(p.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []*Region
	for _, f := range files {
		if r, err := p.read(f.Name()); err == nil {
			list = append(list, r)
		} else if !errors.Is(err, errNoRecord) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if a.Project != b.Project {
			return a.Project < b.Project
		}
		return a.Group < b.Group || a.Group == b.Group && a.Size < b.Size
	})
	return list, nil
}
