// Package sriov runs nearmetal's device commands against a real kernel with an IOMMU and an
// SR-IOV card: on an outer host (test/outer). With NEARMETAL_SRIOV=1 (`make test-sriov`) an inner VM gets a VF by nested
// KVM, which TCG emulates too; without, as in `make test`, both VFs are used on the outer host.
package sriov

import (
	"os"
	"testing"
	"time"

	"nearmetal/test/outer"
)

// innerVM bounds a VM's boot on the outer host and what it does.
const innerVM = 4 * time.Minute

// lab is the outer host.
type lab struct{ *outer.Host }

// onDemand is for the test with an inner VM.
func onDemand(t *testing.T) {
	t.Helper()
	if os.Getenv("NEARMETAL_SRIOV") == "" {
		t.Skip("on demand (a VM in an emulated host): make test-sriov runs it")
	}
}

// fresh runs a test on an outer host.
func fresh(t *testing.T, test func(l *lab, state string)) {
	t.Helper()
	outer.Fresh(t, func() {
		state := t.TempDir()
		l := boot(t, state)
		defer l.Kill()
		test(l, state)
	})
}

// boot starts an outer host whose /var/lib/nearmetal is the directory state, which outlives it.
func boot(t *testing.T, state string) *lab {
	t.Helper()
	return &lab{outer.Start(t, outer.Machine{Name: "outer", State: state, Args: []string{
		// Memory below 2.75 GiB: with more, q35 has some of it above 4 GiB, the firmware puts the
		// root port's prefetchable window there, and QEMU 10.0 maps the VFs' BARs by the lower 32 bits of
		// their address only: igbvf then reads no register ("PF still in reset state").
		"-smp", "4", "-m", "2560M",
		"-object", "memory-backend-ram,id=m0,size=1280M", "-object", "memory-backend-ram,id=m1,size=1280M",
		"-numa", "node,cpus=0-1,memdev=m0", "-numa", "node,cpus=2-3,memdev=m1",
		// The card, on the second node.
		"-device", "pxb-pcie,id=pxb1,bus_nr=64,numa_node=1,bus=pcie.0",
		"-device", "pcie-root-port,id=rp1,bus=pxb1,chassis=1,slot=1",
		// Its network: without IPv6, whose router advertisements make a default route over a VF.
		"-netdev", "user,id=n0,restrict=on,ipv6=off", "-device", "igb,id=igb0,netdev=n0,mac=52:54:00:06:01:00,bus=rp1",
	}})}
}
