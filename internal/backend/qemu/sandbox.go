package qemu

// sandbox makes the kernel reject system calls that QEMU does not need, so that a VM that breaks out of it gains
// little.
type sandbox struct{}

func (sandbox) Valid() error { return nil }

func (sandbox) Args() []string {
	return []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}
}

// base has the arguments of every VM: a name, and no default devices.
type base struct{ Name string }

func (b base) Valid() error { return validID("VM name", b.Name, 100) }

func (b base) Args() []string {
	return []string{"-name", option(b.Name, "debug-threads=on"), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"}
}
