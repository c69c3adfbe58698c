package wiring

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
)

// A refused connection is an answer. An agent that reports no error number cannot show that it was refused: the line
// names the agent, whose update is the remedy.
func TestReachOldAgent(t *testing.T) {
	ends := func(vm, addr string) []End { return []End{{VM: vm, Addr: netip.MustParseAddr(addr), Name: "eth1"}} }
	reach := func(err error) []Unreached {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		dial := func(context.Context, string, string) error { return err }
		return Reach(ctx, dial, ends("vm0", "10.1.0.1"), ends("vm1", "10.1.0.2"))
	}
	if list := reach(fmt.Errorf("connect: %w", unix.ECONNREFUSED)); list != nil {
		t.Error(list)
	}
	const remedy = "the agent of vm0 is of an older nearmetal and reports no error number: update nearmetal in the VM's image"
	list := reach(fmt.Errorf("%w: %w", guest.ErrNoNumber, errors.New("connect: Connection refused")))
	if len(list) != 1 || !strings.Contains(list[0].Why.Error(), remedy) || !strings.Contains(UnreachedLine(list), remedy) {
		t.Error(list)
	}
	if list := reach(fmt.Errorf("connect: %w", unix.ENETUNREACH)); len(list) != 1 || strings.Contains(list[0].Why.Error(), "agent") {
		t.Error(list)
	}
}

// Checks the user's message for each state of a port; the states are the kernel's words.
func TestPortFault(t *testing.T) {
	good := guest.Device{Kind: "pci", PCI: "0000:00:05.0", Net: "eth2", RDMA: "mlx5_0", State: "ACTIVE", Layer: "Ethernet", IP: "10.78.0.1", GID: "3"}
	ib := guest.Device{Kind: "pci", PCI: "0000:00:05.0", RDMA: "mlx5_0", State: "ACTIVE", Layer: "InfiniBand", PKey: "0xffff"}
	if a, b := PortFault("vm0", good), PortFault("vm0", ib); a+b != "" {
		t.Errorf("%q, %q", a, b)
	}
	for want, change := range map[string]func() guest.Device{
		"no subnet manager":              func() guest.Device { d := ib; d.State = "INIT"; return d },
		"virt_enabled 2":                 func() guest.Device { d := ib; d.State = "INIT"; return d },
		"its port is DOWN":               func() guest.Device { d := ib; d.State = "DOWN"; return d },
		"device set VF --policy follow":  func() guest.Device { d := ib; d.State = "DOWN"; return d },
		"ip link show":                   func() guest.Device { d := good; d.State = "DOWN"; return d },
		"its port is in state ARMED":     func() guest.Device { d := ib; d.State = "ARMED"; return d },
		"no GID for RoCE v2":             func() guest.Device { d := good; d.GID = ""; return d },
		"has no link (eth2 is down)":     func() guest.Device { return guest.Device{Net: "eth2", State: "down"} },
		"device 0000:00:06.0 of vm0":     func() guest.Device { return guest.Device{PCI: "0000:00:06.0", RDMA: "", Net: "eth3", State: "dormant"} },
		"device mlx5_0 of vm0 has no li": func() guest.Device { d := good; d.State = "DOWN"; return d },
	} {
		got := PortFault("vm0", change())
		if want == "device 0000:00:06.0 of vm0" {
			want = "device eth3 of vm0"
		}
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A VM whose RDMA devices are all down does not start over TCP without a word; one that is up is enough, and a VM
// without RDMA devices uses TCP anyway.
func TestNoRDMA(t *testing.T) {
	up := guest.Device{Kind: "pci", PCI: "0000:00:05.0", RDMA: "mlx5_0", State: "ACTIVE", Layer: "InfiniBand"}
	down, init := up, up
	down.State, init.State = "DOWN", "INIT"
	for _, list := range [][]guest.Device{nil, {up}, {down, up}, {{Net: "eth2", State: "down"}}} {
		if err := NoRDMA("vm0", list); err != nil {
			t.Error(err)
		}
	}
	for _, list := range [][]guest.Device{{down}, {init, down}, {{Net: "eth2", State: "up"}, down}} {
		err := NoRDMA("vm0", list)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "vm0 has no RDMA device that is ACTIVE") ||
			!strings.Contains(err.Error(), "--allow-tcp") {
			t.Errorf("%+v: %v", list, err)
		}
	}
}
