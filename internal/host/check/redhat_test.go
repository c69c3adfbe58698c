package check

import (
	"context"
	"errors"
	"strings"
	"testing"

	"nearmetal/test/hosttree"
)

// TestRedHatRows covers the defaults of Red Hat's hosts, and the settings that prevent VMs from starting there.
func TestRedHatRows(t *testing.T) {
	for _, tt := range []struct {
		tree, id string
		want     Status
	}{
		{"", "power.tuned", NotApplicable},
		{"etc/tuned/active_profile = balanced", "power.tuned", NotApplicable},
		{"etc/tuned/active_profile = balanced\nproc/9/comm = tuned", "power.tuned", Warn},
		{"etc/tuned/active_profile = virtual-guest\nproc/9/comm = tuned", "power.tuned", Warn},
		{"etc/tuned/active_profile = virtual-host\nproc/9/comm = tuned", "power.tuned", OK},
		{"etc/tuned/active_profile = own hpc-compute\nproc/9/comm = tuned", "power.tuned", OK},
		{"proc/self/attr/current = unconfined", "limits.selinux", NotApplicable},
		{"sys/fs/selinux/enforce = 0\nproc/self/attr/current = u:r:user_t:s0", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = system_u:system_r:unconfined_service_t:s0", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = user_u:user_r:user_t:s0", "limits.selinux", Warn},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = strange", "limits.selinux", Unknown},
		{"sys/fs/selinux/enforce = 1", "limits.selinux", Unknown},
	} {
		dir := hosttree.Dir(t)
		if err := hosttree.Add(dir, "proc/version = x\nsys/x = y\n"+tt.tree); err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), Options{Root: dir, Only: []string{tt.id}, Command: answering})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.Rows[0].Status != tt.want {
			t.Errorf("%q: %+v, not %v", tt.tree, r.Rows, tt.want)
		}
	}
}

// TestVirtiofsdRow: if QEMU has no 9p a virtiofsd is needed; otherwise a missing or old one is not a fault.
func TestVirtiofsdRow(t *testing.T) {
	const (
		redHats = "name \"vhost-user-fs-pci\", bus PCI\n"
		debians = redHats + "name \"virtio-9p-pci\", bus PCI\n"
	)
	for _, tt := range []struct {
		devices, path, says string
		want                Status
		words               string
	}{
		{"", "", "", NotApplicable, "no QEMU"},
		{"name \"virtio-9p-pci\", bus PCI\n", "virtiofsd", "virtiofsd 1.13.2", NotApplicable, "no virtiofs"},
		{redHats, "", "", Fail, "not installed"},
		{debians, "", "", NotApplicable, "9p"},
		{redHats, "/usr/libexec/virtiofsd", "virtiofsd 1.13.0\n", OK, "1.13.0"},
		{redHats, "virtiofsd", "virtiofsd 1.13.2\n", OK, "1.13.2"},
		{redHats, "/usr/libexec/virtiofsd", "virtiofsd 1.11.1\n", Warn, "root"},
		{debians, "/usr/libexec/virtiofsd", "virtiofsd 1.10.0\n", OK, "1.10.0"},
		{redHats, "/usr/libexec/virtiofsd", "virtiofsd 1.4.0\n", Fail, "too old"},
		{redHats, "/usr/lib/qemu/virtiofsd", "virtiofsd version 7.2.22 (Debian 1:7.2+dfsg-7)\n", Fail, "in C"},
		{debians, "/usr/lib/qemu/virtiofsd", "virtiofsd version 7.2.22 (Debian 1:7.2+dfsg-7)\n", NotApplicable, "in C"},
		{redHats, "virtiofsd", "something else", Unknown, "not understood"},
	} {
		command := func(_ context.Context, name string, args ...string) ([]byte, error) {
			switch {
			case name == qemuRedHatPath && tt.devices != "" && strings.Join(args, " ") == "-device help":
				return []byte(tt.devices), nil
			case name == tt.path:
				return []byte(tt.says), nil
			}
			return nil, errNoProgram
		}
		dir := hosttree.Dir(t)
		if err := hosttree.Add(dir, "proc/version = x\nsys/x = y"); err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), Options{Root: dir, Only: []string{"qemu.virtiofsd"}, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.Rows[0].Status != tt.want || !strings.Contains(r.Rows[0].Found, tt.words) {
			t.Errorf("%q, %s %q: %+v, not %v with %q", tt.devices, tt.path, tt.says, r.Rows, tt.want, tt.words)
		}
	}
}

// TestNoProgram: a program that does not exist is missing, not broken, also if it is named by its path.
func TestNoProgram(t *testing.T) {
	for _, name := range []string{"nearmetal-no-such-program", "/usr/libexec/nearmetal-no-such-program"} {
		if _, err := runCommand(context.Background(), name); !errors.Is(err, errNoProgram) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
