package vsphere

import (
	"context"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/backend/vsphere/vcsim"
)

// networks returns the names of all networks and switches.
func networks() string {
	var list []string
	for _, kind := range []string{"Network", "DistributedVirtualPortgroup", "DistributedVirtualSwitch", "VmwareDistributedVirtualSwitch"} {
		for _, e := range simulator.Map.All(kind) {
			// vcsim keeps the uplinks' port group of a removed switch; vCenter removes it.
			if name := e.Entity().Name; !strings.Contains(name, "-DVUplinks-") {
				list = append(list, name)
			}
		}
	}
	return strings.Join(list, " ")
}

const denied = `<SystemErrorFault xmlns="urn:vim25" xsi:type="SystemError"><reason>x</reason></SystemErrorFault>`

// TestSwitches: switches are made once, are left unchanged the second time, and removed completely. Whichever call
// fails, nothing remains.
func TestSwitches(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	s := vcsim.Start(t, vcsim.Options{})
	ctx, p := context.Background(), Part{}
	first := networks()
	w := esx.Switch{Name: "nm-sw", PortGroup: "nm-pg", Card: "vmnic4", MTU: 9000}
	hosts := []string{s.Host, "DC0_C0_H1"}
	for name, do := range map[string]func(remove bool) (bool, error){
		"svs": func(remove bool) (bool, error) { return p.SVS(ctx, s.Host, w, remove) },
		"dvs": func(remove bool) (bool, error) { return p.DVS(ctx, hosts, w, remove) },
	} {
		s.Fail(nil)
		if made, err := do(false); err != nil || !made || !strings.Contains(networks(), "nm-pg") {
			t.Fatalf("%s: %v, %v, %s", name, made, err, networks())
		}
		all := s.Calls()
		if made, err := do(false); err != nil || made {
			t.Errorf("%s again: %v, %v", name, made, err)
		}
		if gone, err := do(true); err != nil || !gone {
			t.Errorf("%s: removed: %v, %v", name, gone, err)
		}
		if gone, err := do(true); err != nil || gone {
			t.Errorf("%s: removed again: %v, %v", name, gone, err)
		}
		if strings.Contains(networks(), "nm-") {
			t.Errorf("%s: left: %s", name, networks())
		}
		for i := 1; i < len(all); i++ {
			if all[i-1] == "RetrievePropertiesEx" && i%3 != 0 {
				continue // the variants are alike
			}
			s.Fail(func(n int, method string) vcsim.Failure {
				if n == i {
					return vcsim.Failure{Text: "out of memory", Fault: denied}
				}
				return vcsim.Failure{}
			})
			made, err := do(false)
			s.Fail(nil)
			if err == nil {
				// The call does not affect the result: a log-out, or the end of a wait.
				if _, err := do(true); err != nil || !made {
					t.Errorf("%s: call %d (%s): %v, %v", name, i, all[i-1], made, err)
				}
				continue
			}
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%s: call %d (%s): %v", name, i, all[i-1], err)
			}
			// A call that fails after vCenter's work, such as a wait, may leave a marked object: the next removal
			// removes it.
			if _, err := do(true); err != nil {
				t.Errorf("%s: call %d (%s): removed afterwards: %v", name, i, all[i-1], err)
			}
			if strings.Contains(networks(), "nm-") {
				t.Errorf("%s: call %d (%s): left: %s", name, i, all[i-1], networks())
			}
		}
	}
	if networks() != first && len(networks()) != len(first) {
		t.Errorf("%s\nwas\n%s", networks(), first)
	}
}

// TestOthersSwitches: other users' switches are left unchanged.
func TestOthersSwitches(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	ctx, p := context.Background(), Part{}
	s.Fail(nil)
	h := s.Hosts()[0]
	h.Config.Network.Vswitch[0].Pnic = []string{"key-vim.host.PhysicalNic-vmnic0"}
	for _, x := range []struct {
		do   func() (bool, error)
		want string
	}{
		{func() (bool, error) {
			return p.DVS(ctx, []string{s.Host}, esx.Switch{Name: "DVS0", PortGroup: "x", Card: "vmnic4"}, true)
		}, "did not make it"},
		{func() (bool, error) {
			return p.DVS(ctx, []string{s.Host}, esx.Switch{Name: "DVS0", PortGroup: "x", Card: "vmnic4"}, false)
		}, "did not make it"},
		{func() (bool, error) {
			return p.DVS(ctx, []string{s.Host}, esx.Switch{Name: "new", PortGroup: "x", Card: "vmnic9"}, false)
		}, "no card"},
		{func() (bool, error) {
			return p.DVS(ctx, []string{s.Host}, esx.Switch{Name: "new", PortGroup: "x", Card: "vmnic0"}, false)
		}, "is in switch vSwitch0"},
		{func() (bool, error) {
			return p.SVS(ctx, s.Host, esx.Switch{Name: "vSwitch0", PortGroup: "VM Network", Card: "vmnic4"}, true)
		}, "it is another's"},
		{func() (bool, error) {
			return p.SVS(ctx, s.Host, esx.Switch{Name: "vSwitch0", PortGroup: "VM Network", Card: "vmnic0"}, true)
		}, "besides: it is not removed"},
		{func() (bool, error) {
			return p.SVS(ctx, s.Host, esx.Switch{Name: "new", PortGroup: "VM Network", Card: "vmnic4"}, false)
		}, `is of switch "vSwitch0"`},
	} {
		s.Fail(nil)
		_, err := x.do()
		calls := strings.Join(s.Calls(), " ")
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") || strings.Contains(calls, "Remove") || strings.Contains(calls, "Destroy_Task") || strings.Contains(calls, "Add") || strings.Contains(calls, "CreateDVS") {
			t.Errorf("%v, %s\nwant %s", err, calls, x.want)
		}
	}
}
