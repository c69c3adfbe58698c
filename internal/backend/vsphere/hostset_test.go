package vsphere

import (
	"context"
	"strings"
	"testing"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/backend/vsphere/vcsim"
)

func seek(t *testing.T, list []esx.Function, a string) esx.Function {
	t.Helper()
	for _, f := range list {
		if f.Address == a {
			return f
		}
	}
	t.Fatalf("no %s in %+v", a, list)
	return esx.Function{}
}

// TestSetDevices: devices get passthrough and virtual functions as requested. Each change is one call, is read back,
// and can be undone by the opposite one.
func TestSetDevices(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	ctx, p := context.Background(), Part{}
	first, err := p.Functions(ctx, s.Host)
	if err != nil || len(first) != 4 {
		t.Fatalf("%v, %+v", err, first)
	}
	if f := seek(t, first, "0000:3b:00.0"); f.Net != "vmnic4" || f.VFs != vcsim.VFs || f.Most != 16 || f.Passthru {
		t.Errorf("%+v", f)
	}
	before, after, err := p.SetVFs(ctx, s.Host, []string{"vmnic4", "0000:af:00.0"}, 8)
	if err != nil || before[0].VFs != vcsim.VFs || after[0].VFs != 8 || after[1].VFs != 8 {
		t.Fatalf("%v, %+v, %+v", err, before, after)
	}
	if _, after, err = p.SetPassthru(ctx, s.Host, []string{"af:00.1"}, false); err != nil || after[0].Active {
		t.Fatalf("%v, %+v", err, after)
	}
	s.Fail(nil)
	if _, _, err = p.SetPassthru(ctx, s.Host, []string{"af:00.1"}, false); err != nil || strings.Contains(strings.Join(s.Calls(), " "), "UpdatePassthruConfig") {
		t.Errorf("%v: what is so already was changed: %v", err, s.Calls())
	}
	p.SetVFs(ctx, s.Host, []string{"vmnic4", "vmnic6"}, vcsim.VFs)
	p.SetPassthru(ctx, s.Host, []string{"0000:af:00.1"}, true)
	last, err := p.Functions(ctx, s.Host)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if first[i].VFs != last[i].VFs || first[i].Active != last[i].Active {
			t.Errorf("%+v is not as it was: %+v", last[i], first[i])
		}
	}
}

// TestRefusedDevices: an impossible change is rejected before any call; a call that fails changes nothing, and is one
// line.
func TestRefusedDevices(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	ctx, p := context.Background(), Part{}
	h := s.Hosts()[0]
	h.Config.Network.Vswitch[0].Pnic = []string{"key-vim.host.PhysicalNic-vmnic6"}
	var none []esx.Function
	for _, x := range []struct {
		do   func() ([]esx.Function, []esx.Function, error)
		want string
	}{
		{func() ([]esx.Function, []esx.Function, error) { return p.SetVFs(ctx, s.Host, []string{"vmnic4"}, 17) }, "can have 16 virtual functions, not 17"},
		{func() ([]esx.Function, []esx.Function, error) { return p.SetVFs(ctx, s.Host, []string{"3b:00.1"}, 2) }, "passed through as a whole"},
		{func() ([]esx.Function, []esx.Function, error) { return p.SetVFs(ctx, s.Host, []string{"vmnic0"}, 2) }, "it has 0000:3b:00.0"},
		{func() ([]esx.Function, []esx.Function, error) {
			return p.SetVFs(ctx, s.Host, []string{"vmnic4", "3b:00.0"}, 2)
		}, "named twice"},
		{func() ([]esx.Function, []esx.Function, error) {
			return p.SetPassthru(ctx, s.Host, []string{"vmnic4"}, true)
		}, "set them to 0 first"},
		{func() ([]esx.Function, []esx.Function, error) {
			p.SetVFs(ctx, s.Host, []string{"vmnic6"}, 0)
			s.Fail(nil)
			return p.SetPassthru(ctx, s.Host, []string{"vmnic6"}, true)
		}, "carries vSwitch0: take it from there first"},
		{func() ([]esx.Function, []esx.Function, error) {
			_, _, err := p.Power(ctx, s.Host, "fast")
			return none, none, err
		}, "not a power policy"},
	} {
		s.Fail(nil)
		_, _, err := x.do()
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") || strings.Contains(strings.Join(s.Calls(), " "), "UpdatePassthruConfig") {
			t.Errorf("%v, %v\nwant %s", err, s.Calls(), x.want)
		}
	}
	s.Fail(func(n int, method string) vcsim.Failure {
		if method == "UpdatePassthruConfig" {
			return vcsim.Failure{Text: "The host needs maintenance mode.", Fault: `<HostConfigFaultFault xmlns="urn:vim25" xsi:type="HostConfigFault"></HostConfigFaultFault>`}
		}
		return vcsim.Failure{}
	})
	if _, _, err := p.SetVFs(ctx, s.Host, []string{"vmnic4"}, 2); err == nil || !strings.Contains(err.Error(), "The host needs maintenance mode.") || !strings.Contains(err.Error(), s.Host) {
		t.Errorf("%v", err)
	}
	s.Fail(nil)
	if list, err := p.Functions(ctx, s.Host); err != nil || seek(t, list, "0000:3b:00.0").VFs != vcsim.VFs {
		t.Errorf("%v, %+v", err, list)
	}
}

// TestPower: a power policy is set and read back.
func TestPower(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	ctx, p := context.Background(), Part{}
	if b, a, err := p.Power(ctx, s.Host, ""); err != nil || b != "high" || a != "high" {
		t.Errorf("%s %s %v", b, a, err)
	}
	if b, a, err := p.Power(ctx, s.Host, "low"); err != nil || b != "high" || a != "low" {
		t.Errorf("%s %s %v", b, a, err)
	}
	s.Hosts()[0].Config.PowerSystemInfo = nil
	if _, _, err := p.Power(ctx, s.Host, "high"); err == nil || !strings.Contains(err.Error(), "its firmware") {
		t.Errorf("%v", err)
	}
}
