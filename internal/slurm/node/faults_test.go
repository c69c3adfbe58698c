package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	_ "nearmetal/internal/backend/qemu"
	"nearmetal/internal/spec"
)

// Checks that the table of docs/slurm.md matches the code.
func TestFaultTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "| what is wrong | fails the job | drains the host |\n|---|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	want := ""
	for _, f := range Faults {
		drains := "no"
		if f.Drains {
			drains = "yes"
		}
		want += "| " + f.What + " | yes | " + drains + " |\n"
	}
	if !ok || table+"\n" != want {
		t.Errorf("docs/slurm.md:\n%s\nwant\n%s", table, want)
	}
}

// Checks that a missing choice of the user does not drain the host, and that one of the site or the host does.
func TestWhoseFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  spec.Cluster
		alloc Allocation
		host  bool
	}{
		{"own QEMU", spec.Cluster{QEMU: "/no/such/qemu"}, Allocation{}, false},
		{"own kernel", spec.Cluster{Kernel: "/no/such/kernel"}, Allocation{}, false},
		{"own wish for KVM", spec.Cluster{Accel: "kvm"}, Allocation{Accel: "auto"}, false},
		{"the site's wish for KVM", spec.Cluster{Accel: "kvm"}, Allocation{Accel: "kvm"}, true},
	} {
		t.Setenv("NEARMETAL_RUNTIME_DIR", t.TempDir())
		err := checkHost(context.Background(), &c.spec, c.alloc)
		if err == nil && c.spec.Accel == "kvm" {
			continue // this host has KVM
		}
		var fault *HostFault
		if err == nil || errors.As(err, &fault) != c.host {
			t.Errorf("%s: %v: the host's fault: %v, want %v", c.name, err, fault != nil, c.host)
		}
		if fault != nil && !fault.Drains {
			t.Errorf("%s: %+v does not drain", c.name, fault.Fault)
		}
	}
}
