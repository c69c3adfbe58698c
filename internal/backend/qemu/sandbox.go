package qemu

// sandbox has the kernel refuse to QEMU the system calls that it does not need: a VM that breaks out of it gets little.
type sandbox struct{}

func (sandbox) Valid() error { return nil }

func (sandbox) Args() []string {
	return []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}
}

// base is what every VM of ours has: a name, and nothing that was not asked for.
type base struct{ Name string }

func (b base) Valid() error { return validID("VM name", b.Name, 100) }

func (b base) Args() []string {
	return []string{"-name", option(b.Name, "debug-threads=on"), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"}
}
