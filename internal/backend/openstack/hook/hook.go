package hook

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/process"
)

// Hook handles an operation of libvirt on a domain (libvirt's docs/hooks.rst): prepare makes the region, started has
// it plugged, release ends it. in is the domain's XML. An error prevents the domain from starting, and Nova reports
// its line as the server's fault. Processes that Hook starts inherit none of its streams, because libvirtd waits for
// these to end.
func (p Paths) Hook(operation string, in io.Reader) error {
	switch operation {
	case "prepare", "started", "release", "reconnect":
	default:
		return nil
	}
	c, err := p.ReadConfig()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d, err := ParseDomain(in)
	if err != nil || d == nil {
		return err
	}
	if operation == "release" || operation == "reconnect" {
		return p.release(d, operation == "release")
	}
	size, err := c.size(d)
	if err != nil || size == 0 {
		return err
	}
	if operation == "prepare" {
		return p.prepare(d, &Region{Key: key(d.Project, d.Group, size), Project: d.Project, Group: d.Group, Size: size, Node: d.Node, Made: time.Now().UTC()})
	}
	return p.started(d, c)
}

// prepare joins a domain that will start to its group's region, which is created if it does not exist.
func (p Paths) prepare(d *Domain, r *Region) error {
	switch {
	case d.Bus == "":
		return fmt.Errorf("a region needs a machine of type q35 or pc of x86_64: set hw_machine_type of the image")
	case d.Bus == BusPCIe && d.Port == 0:
		return fmt.Errorf("no PCI Express root port is free for the region: set num_pcie_ports=16 in nova.conf, section [libvirt]")
	}
	daemon := os.Getppid()
	start, err := process.Start(daemon)
	if err != nil {
		return err
	}
	l, err := p.lock()
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := p.sweep(); err != nil {
		return err
	}
	old, err := p.read(r.Key + ".json")
	switch {
	case err == nil:
		r = old
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	r.leave(p, d.UUID)
	if len(r.VMs) >= membersMax {
		return fmt.Errorf("the region of group %.80q has %d VMs already", r.Group, len(r.VMs))
	}
	r.VMs = append(r.VMs, Member{UUID: d.UUID, Name: d.Name, Daemon: daemon, DaemonStart: start})
	if err := p.write(r); err != nil {
		return err
	}
	if _, err := os.Lstat(p.memory(r)); err == nil {
		return nil
	}
	if err := p.make(r); err != nil {
		return errors.Join(err, p.drop(r))
	}
	return nil
}

// leave removes a VM from a region. It reports whether the VM was a member.
func (r *Region) leave(p Paths, uuid string) bool {
	for i := range r.VMs {
		if r.VMs[i].UUID == uuid {
			p.closeDoor(&r.VMs[i])
			r.VMs = append(r.VMs[:i], r.VMs[i+1:]...)
			return true
		}
	}
	return false
}

// member finds a domain's region and its member there; nil: none.
func (p Paths) member(uuid string) (*Region, *Member, error) {
	list, err := p.List()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range list {
		for i := range r.VMs {
			if r.VMs[i].UUID == uuid {
				return r, &r.VMs[i], nil
			}
		}
	}
	return nil, nil, nil
}

// lockMember locks the host's regions until the file is closed, and finds the region of a domain; nil: it has none.
func (p Paths) lockMember(uuid string) (*Region, *os.File, error) {
	l, err := p.lock()
	if err != nil {
		return nil, nil, err
	}
	r, _, err := p.member(uuid)
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	return r, l, nil
}

// started gives the newly started QEMU access to the memory, and has the region plugged.
func (p Paths) started(d *Domain, c *Config) error {
	r, l, err := p.lockMember(d.UUID)
	if err != nil {
		return err
	}
	defer l.Close()
	if r == nil {
		return errors.New("no region was made for it: its flavor was given one while it started")
	}
	q, err := findQEMU(d.Name, d.UUID)
	if err != nil {
		return err
	}
	if q == nil {
		return errors.New("its QEMU is not there")
	}
	defer q.Close()
	if err := own(p.memory(r), q, d.User); err != nil {
		return err
	}
	cmd := exec.Command(c.Program, "host", "openstack-region", "plug", d.UUID)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start() // not waited for: libvirtd does not complete this start before this process has ended
}

// findQEMU returns the process of a domain of the host's libvirtd, where Nova's domains are; nil: none.
func findQEMU(name, uuid string) (*process.Process, error) {
	return daemon.Address{}.FindQEMU(name, daemon.UUID(uuid))
}

// own makes a QEMU's user the owner of a region's memory. All of a region's VMs run as one user. said is the user of
// this QEMU as reported by libvirtd; -1: not reported.
func own(path string, q *process.Process, said int) error {
	users, groups, err := q.Owner()
	if err != nil {
		return fmt.Errorf("its QEMU: %w", err)
	}
	user, group := users[1], groups[1]
	if said >= 0 && user != said {
		return fmt.Errorf("its QEMU runs as user %d, and libvirtd started it as user %d", user, said)
	}
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	now := st.Sys().(*syscall.Stat_t)
	if int(now.Uid) == user && int(now.Gid) == group {
		return nil
	}
	if now.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("the region belongs to VMs of user %d, and this one runs as user %d", now.Uid, user)
	}
	return os.Lchown(path, user, group)
}

// release removes a domain that has ended from its region, and removes regions without a VM.
func (p Paths) release(d *Domain, ended bool) error {
	if _, err := os.Lstat(p.State); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r, l, err := p.lockMember(d.UUID)
	if err != nil {
		return err
	}
	defer l.Close()
	if r != nil && ended {
		r.leave(p, d.UUID)
		if err := p.write(r); err != nil {
			return err
		}
	}
	_, err = p.sweep()
	return err
}
