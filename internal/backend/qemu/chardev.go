package qemu

import "fmt"

// chardev is a stream over an inherited, connected socket.
type chardev struct {
	ID string
	FD int
}

func (c chardev) Valid() error {
	if c.FD < firstFD {
		return fmt.Errorf("chardev %s: %w", c.ID, errNoFD)
	}
	return validID("chardev", c.ID, 40)
}

func (c chardev) Args() []string {
	return []string{"-chardev", option("socket", "id="+c.ID, fmt.Sprintf("fd=%d", c.FD))}
}

// monitor is QMP on a chardev.
type monitor struct{ Chardev chardev }

func (m monitor) Valid() error { return m.Chardev.Valid() }

func (m monitor) Args() []string {
	return append(m.Chardev.Args(), "-mon", option("chardev="+m.Chardev.ID, "mode=control"))
}

// serialConsole is the first serial port, the guest kernel's console.
type serialConsole struct{ Chardev chardev }

func (s serialConsole) Valid() error { return s.Chardev.Valid() }

func (s serialConsole) Args() []string {
	return append(s.Chardev.Args(), "-serial", "chardev:"+s.Chardev.ID)
}

// agentPort is the virtio-serial port connected to the guest agent.
type agentPort struct {
	Chardev chardev
	Name    string
}

func (p agentPort) Valid() error {
	if err := validID("port", p.Name, 100); err != nil {
		return err
	}
	return p.Chardev.Valid()
}

func (p agentPort) Args() []string {
	// Port 0 is reserved for a console, so two ports are needed. Each costs the guest's driver two queues.
	return append(p.Chardev.Args(), "-device", "virtio-serial-pci,id=serial0,max_ports=2",
		"-device", option("virtserialport", "bus=serial0.0", "nr=1", "chardev="+p.Chardev.ID, "name="+p.Name))
}
