package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"nearmetal/internal/cluster/state"
)

// A VM that has ended is not counted as ready.
func TestPsDegraded(t *testing.T) {
	vms := []state.VMRecord{
		{Name: "vm0", VCPUs: 2, MemoryBytes: 1 << 30, State: state.Ready},
		{Name: "vm1", VCPUs: 2, MemoryBytes: 1 << 30, State: state.Dead, Ended: "vm1 ended: its kernel panicked"},
	}
	list := []state.Record{
		{Name: "whole", State: state.Ready, Accel: "kvm", Backend: "qemu", VMs: vms[:1]}, {Name: "demo", State: state.Ready, VMs: vms},
		{Name: "gone", State: state.Dead, VMs: vms},
	}
	var out bytes.Buffer
	if err := clusterTable(list).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`whole +ready +1 +2 +1GiB +kvm +qemu `, `demo +degraded +1 of 2 +2 +1GiB `, `gone +dead +2 `} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(out.String()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printVMs(&out, &list[1]); err != nil {
		t.Fatal(err)
	}
	const ended = "\nvm1 ended: its kernel panicked\nconsole: nearmetal logs demo/vm1\n"
	if !strings.HasSuffix(out.String(), ended) {
		t.Errorf("%s", out.String())
	}

	// The command to restart it is named only where it works: not on several hosts, nor with every backend.
	for _, x := range []struct {
		r    state.Record
		want string
	}{
		{state.Record{Name: "demo", State: state.Ready, Life: state.Life{Kept: true}, VMs: vms}, ended},
		{state.Record{Name: "demo", State: state.Ready, Life: state.Life{Kept: true, Restartable: true}, VMs: vms}, ended + "start it again: nearmetal restart demo/vm1\n"},
		{state.Record{Name: "demo", State: state.Ready, Life: state.Life{Kept: true, Restartable: true}, VMs: vms[1:]}, ended},
	} {
		out.Reset()
		if err := printVMs(&out, &x.r); err != nil || !strings.HasSuffix(out.String(), x.want) {
			t.Errorf("%v, %q, want %q", err, out.String(), x.want)
		}
	}
}
