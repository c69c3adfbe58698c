package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
	"nearmetal/internal/spec"
)

// Devices returns the devices by which messages leave a host: those of the first VM, if all VMs have the same and
// none of them has a fault; nil: there are none.
func (r *Record) Devices() []launch.Device {
	if len(r.VMs) == 0 || len(r.DeviceFaults) > 0 || r.Spec == nil {
		return nil
	}
	for _, v := range r.VMs[1:] {
		if !alike(r.VMs[0].Devices, v.Devices) {
			return nil
		}
	}
	var list []launch.Device
	for _, d := range r.VMs[0].Devices {
		ip, err := netip.ParseAddr(d.IP)
		if d.RDMA == "" && err != nil {
			continue // not a network device
		}
		l := launch.Device{RDMA: d.RDMA, Port: d.Port, InfiniBand: d.Layer == "InfiniBand", GID: d.GID, PKey: d.PKey,
			Net: d.Net, Soft: d.Kind == "rxe"}
		// Soft RoCE is on the VMs' network, or on a device's interface.
		for _, subnet := range []string{r.Spec.Network.DeviceSubnet, r.VMs[0].Subnet} {
			if p, e := netip.ParsePrefix(subnet); e == nil && err == nil && p.Contains(ip) {
				l.Subnet = p.Masked()
			}
		}
		list = append(list, l)
	}
	return list
}

// alike reports whether two VMs have devices of the same names.
func alike(a, b []guest.Device) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].RDMA != b[i].RDMA || a[i].Net != b[i].Net || a[i].Port != b[i].Port || a[i].Layer != b[i].Layer {
			return false
		}
	}
	return true
}

// Way is the path of messages between the VMs of a pair.
type Way struct {
	Between string // which pairs, in words
	By      string // the transport that carries them
}

func (w Way) String() string { return "messages between " + w.Between + " go by " + w.By }

// Ways returns the path of messages of an MPI library on libfabric between each kind of pair of the cluster's VMs:
// pairs on one host, and pairs on different hosts.
func (r *Record) Ways() []Way {
	var list []Way
	between := "VMs"
	if len(r.Overlay) > 0 || len(r.Remote) > 1 {
		between = "VMs of one host"
	}
	if r.neighbours() {
		by := r.far()
		switch own := strings.Contains(r.env("FI_PROVIDER"), launch.Provider); {
		case r.Promised > 0 && own:
			between, by = "VMs of one host", fmt.Sprintf("the region of %s that their backend promises", spec.Size(r.Promised))
		case r.Promised > 0:
			by += fmt.Sprintf("; the backend promises a region of %s, for programs with the variables of docs/environment.md", spec.Size(r.Promised))
		}
		if r.Fabric != "" && r.Plan != nil && r.Plan.Region != nil {
			by = fmt.Sprintf("the region of %s", spec.Size(r.Plan.Region.SizeBytes))
		}
		list = append(list, Way{between, by})
	}
	if len(r.Remote) > 1 {
		list = append(list, Way{"VMs of different hosts", r.far()})
	}
	if len(r.Overlay) > 1 {
		list = append(list, Way{"VMs of different hosts", r.far()})
		for _, h := range r.Overlay {
			switch {
			case h.Self || r.State == Booting:
			case !h.Joined:
				list = append(list, Way{"VMs of this host and of " + h.Name, "none yet: " + cmp.Or(h.Why, "it has not called yet")})
			case h.DeviceFault != "":
				list = append(list, Way{"VMs of this host and of " + h.Name, "at fault: " + h.DeviceFault})
			}
		}
	}
	return list
}

// env returns a variable of the cluster file; "": not set.
func (r *Record) env(name string) string {
	if r.Spec == nil {
		return ""
	}
	return r.Spec.Env[name]
}

// neighbours reports whether two VMs are on one host.
func (r *Record) neighbours() bool {
	if len(r.Remote) == 0 {
		return len(r.VMs) > 1
	}
	return slices.ContainsFunc(r.Remote, func(h RemoteHost) bool { return len(h.VMs) > 1 })
}

// far returns the transport of messages that do not use the region.
func (r *Record) far() string {
	var verbs, tcp []string
	for _, d := range r.Devices() {
		switch {
		case d.RDMA == "":
			tcp = append(tcp, d.Net)
		case d.InfiniBand:
			verbs = append(verbs, fmt.Sprintf("%s port %s (InfiniBand)", d.RDMA, d.Port))
		default:
			verbs = append(verbs, fmt.Sprintf("%s port %s (RoCE v2, GID %s)", d.RDMA, d.Port, d.GID))
		}
	}
	switch {
	case len(verbs) > 0:
		return "verbs over " + strings.Join(verbs, ", ")
	case len(tcp) > 0:
		return "TCP over " + strings.Join(tcp, ", ")
	case len(r.DeviceFaults) > 0:
		return "TCP over the VMs' network, since " + r.DeviceFaults[0]
	}
	return "TCP over the VMs' network"
}
