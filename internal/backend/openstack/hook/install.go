package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/text"
)

// journalName is the name of the transactions in the host's journals.
const journalName = "openstack-region"

// hookHeader begins the hook's program and identifies it as nearmetal's.
const hookHeader = "#!/bin/sh\n# Written by nearmetal host openstack-region install; nearmetal host openstack-region remove removes it.\n"

// leastLibvirt is the first release that runs several hooks (qemu.d), in libvirt's version numbers.
const leastLibvirt = 6005000

func hookText(program string) string {
	q := text.Shell(program)
	return hookHeader + "[ -x " + q + " ] || exit 0\nexec " + q + " host openstack-region hook \"$@\"\n"
}

// Install writes the hook and its configuration, both at once or neither. If they exist, the configuration is
// replaced. Files that are not nearmetal's are never changed. It returns whether the hook is new to this host.
func (p Paths) Install(ctx context.Context, c *Config) (fresh bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	if err := enough(ctx, c); err != nil {
		return false, err
	}
	return p.install(c)
}

func (p Paths) install(c *Config) (fresh bool, err error) {
	if fresh, err = p.needsHook(); err != nil {
		return false, err
	}
	c.Installed = time.Now().UTC()
	if old, err := p.ReadConfig(); err == nil && !fresh {
		c.Installed = old.Installed
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(c); err != nil {
		return false, err
	}
	t, err := change.Begin(p.Journal, journalName)
	if err != nil {
		return false, err
	}
	if fresh {
		err = t.Make(p.Config, text.String(), 0o644)
		if err == nil {
			err = t.Make(p.HookFile, hookText(c.Program), 0o755)
		}
	} else {
		err = t.Replace(p.Config, text.String(), 0o644)
		if err == nil {
			err = t.Replace(p.HookFile, hookText(c.Program), 0o755)
		}
	}
	if err != nil {
		_, bad := t.Rollback()
		return false, errors.Join(err, bad)
	}
	return fresh, t.Commit()
}

// enough returns an error unless libvirtd runs hooks of qemu.d.
func enough(ctx context.Context, c *Config) error {
	a, err := daemon.Parse(c.Connect)
	if err != nil {
		return err
	}
	if a.Session {
		return errors.New("Nova's domains are of the host's libvirtd: qemu:///system")
	}
	v, err := daemon.Reach(ctx, a)
	if err != nil {
		return err
	}
	defer v.Close()
	n, _, err := v.Versions(ctx)
	if err == nil && n < leastLibvirt {
		err = fmt.Errorf("libvirt %d.%d.%d has one hook for all (/etc/libvirt/hooks/qemu): 6.5 or newer is needed, which runs those of qemu.d, too",
			n/1000000, n/1000%1000, n%1000)
	}
	return err
}

// needsHook reports whether the hook has to be created. It fails if another program's hook has its name.
func (p Paths) needsHook() (fresh bool, err error) {
	text, err := os.ReadFile(p.HookFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case !strings.HasPrefix(string(text), hookHeader):
		return false, fmt.Errorf("%s is there already, and not nearmetal's: move it away first", p.HookFile)
	}
	return false, nil
}

// Remove removes the files that Install wrote, and remains of regions. It fails while a VM has a region, because
// nobody would remove the region when the VM ends. It returns the changes that it undid.
func (p Paths) Remove() ([]journal.Change, error) {
	if _, err := p.Sweep(); err != nil {
		return nil, err
	}
	list, err := p.List()
	if err != nil {
		return nil, err
	}
	n := 0
	for _, r := range list {
		n += len(r.VMs)
	}
	if n > 0 {
		return nil, fmt.Errorf("VMs of this host have a region (%d): end or migrate them first (nearmetal host openstack-region status shows them)", n)
	}
	did, err := change.Undo(p.Journal, func(name string) bool { return name == journalName })
	if err != nil {
		return did, err
	}
	// The directory contains only the lock by now. A running hook makes them again.
	os.Remove(filepath.Join(p.State, "lock"))
	os.Remove(p.State)
	os.Remove(p.Memory)
	return did, nil
}

// Status describes the installation on this host.
type Status struct {
	Installed bool      `json:"installed"`
	Active    bool      `json:"active"` // libvirtd runs the hook
	Advice    string    `json:"advice,omitempty"`
	Regions   []*Region `json:"regions"`
}

// Status reads the installation. It changes nothing, and asks libvirtd only for its version. It requires root.
func (p Paths) Status(ctx context.Context) (*Status, error) {
	list, err := p.List()
	if err != nil {
		return nil, err
	}
	s := &Status{Regions: list}
	if s.Regions == nil {
		s.Regions = []*Region{}
	}
	fresh, err := p.needsHook()
	if err != nil {
		return nil, err
	}
	if fresh {
		s.Advice = "nearmetal host openstack-region install"
		return s, nil
	}
	s.Installed = true
	c, err := p.ReadConfig()
	if err != nil {
		return nil, err
	}
	if err := enough(ctx, c); err != nil {
		s.Advice = err.Error()
		return s, nil
	}
	a, err := daemon.Parse(c.Connect)
	if err != nil {
		return nil, err
	}
	since, err := a.Since(ctx)
	if err != nil {
		return nil, err
	}
	if s.Active = since.After(c.Installed); !s.Active {
		s.Advice = "restart libvirtd, which looks for hooks when it starts (systemctl restart libvirtd, or virtqemud); VMs stay"
	}
	return s, nil
}
