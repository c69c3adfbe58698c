package hook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/backend/libvirt/daemon"
)

// plugWait bounds the time in which libvirtd has to complete a start and plug the region.
const plugWait = 5 * time.Minute

// Plug plugs the region into a domain that has started. Then it resets the VM, unless the VM was started paused: its
// firmware sets addresses and windows of the bus up only once, and may have looked for devices before. The VM is at
// its first instructions, so nothing is lost. A failure is written into the region's record, which status prints.
func (p Paths) Plug(ctx context.Context, uuid string) error {
	if !uuidForm().MatchString(uuid) {
		return fmt.Errorf("%.60q is not a UUID of a domain", uuid)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, plugWait, fmt.Errorf("the domain was not started and plugged in %v", plugWait))
	defer cancel()
	c, err := p.ReadConfig()
	if err != nil {
		return err
	}
	door, size, err := p.openDoor(uuid)
	if err != nil {
		return err
	}
	err = plug(ctx, c, uuid, door, size)
	return errors.Join(err, p.settle(uuid, err))
}

// openDoor adds a name to a region's memory under which libvirtd finds it, and which nobody can guess.
func (p Paths) openDoor(uuid string) (door string, size uint64, err error) {
	l, err := p.lock()
	if err != nil {
		return "", 0, err
	}
	defer l.Close()
	r, m, err := p.member(uuid)
	if err != nil {
		return "", 0, err
	}
	if r == nil {
		return "", 0, fmt.Errorf("domain %s has no region", uuid)
	}
	p.closeDoor(m)
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", 0, err
	}
	m.Door = "nearmetal-" + hex.EncodeToString(id[:])
	if err := p.write(r); err != nil {
		return "", 0, err
	}
	err = os.Link(p.memory(r), filepath.Join(p.Shared, m.Door))
	step()
	return m.Door, uint64(r.Size), err
}

// settle removes that name, and records the result.
func (p Paths) settle(uuid string, problem error) error {
	l, err := p.lock()
	if err != nil {
		return err
	}
	defer l.Close()
	r, m, err := p.member(uuid)
	if err != nil || r == nil {
		return err
	}
	p.closeDoor(m)
	step()
	m.Plugged, m.Problem = problem == nil, ""
	if problem != nil {
		m.Problem = problem.Error()
	}
	return p.write(r)
}

// plug asks libvirtd, which answers when it has completed the start.
func plug(ctx context.Context, c *Config, uuid, door string, size uint64) error {
	a, err := daemon.Parse(c.Connect)
	if err != nil {
		return err
	}
	v, err := daemon.Reach(ctx, a)
	if err != nil {
		return err
	}
	defer v.Close()
	x, err := v.Find(ctx, uuid)
	if err != nil {
		return err
	}
	text, err := v.XML(ctx, x)
	if err != nil {
		return err
	}
	d, err := ParseDomain(strings.NewReader(text))
	switch {
	case err != nil:
		return err
	case d == nil:
		return fmt.Errorf("domain %s is not Nova's any more", uuid)
	case d.Bus == BusPCIe && d.Port == 0:
		return errors.New("no PCI Express root port is free any more")
	}
	// A start holds the domain while the hook of "started" runs, and so may other calls: libvirtd reports that after
	// 30 s.
	for {
		if err = v.Attach(ctx, x, device(d, door, size)); err == nil || !daemon.IsBusy(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	running, err := v.Runs(ctx, x)
	if err != nil || !running || !d.Reboots {
		return err
	}
	return v.Reset(ctx, x)
}

// device returns the region's device in libvirt's XML. By default libvirt looks for a conventional PCI slot, which a
// machine with root ports does not have.
func device(d *Domain, door string, size uint64) string {
	address := ""
	if d.Bus == BusPCIe {
		address = fmt.Sprintf("<address type='pci' domain='0x0000' bus='0x%02x' slot='0x00' function='0x0'/>", d.Port)
	}
	return fmt.Sprintf("<shmem name='%s'><model type='ivshmem-plain'/><size unit='B'>%d</size>%s</shmem>", door, size, address)
}
