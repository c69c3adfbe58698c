package device

import (
	"context"
	"sort"
)

// Details has all information on one function.
type Details struct {
	*Function
	// Attributes are those of a VF that the kernel reports (see the function Attributes).
	Attributes map[string]string `json:"attributes,omitempty"`
	// Eswitch is the mode of a PF's eswitch, "legacy" or "switchdev"; "" if its driver has none.
	Eswitch string `json:"eswitch,omitempty"`
	// FirmwareSettings are the settings of a Mellanox card that are relevant for VMs, by mstconfig's names.
	FirmwareSettings map[string]string `json:"firmwareSettings,omitempty"`
}

// Show returns the details of a function by any of its names.
func (h *Host) Show(ctx context.Context, name string) (*Details, error) {
	f, err := h.Find(name)
	if err != nil {
		return nil, err
	}
	h.holders([]*Function{f})
	d := &Details{Function: f}
	if f.Kind == VF && f.Index >= 0 {
		d.Attributes = h.VFAttributes(f)
	}
	if f.Kind == PF {
		d.Eswitch, _ = h.Links.Eswitch(f.Address)
	}
	if f.Kind != VF && f.Vendor == Mellanox {
		d.FirmwareSettings, _ = h.queryFirmware(ctx, f.Address) // included if mstconfig can report them
	}
	return d, nil
}

// Settings returns attributes and the firmware's settings, sorted, for a table.
func (d *Details) Settings() [][2]string {
	var out [][2]string
	for _, m := range []map[string]string{d.Attributes, d.FirmwareSettings} {
		first := len(out)
		for k, v := range m {
			out = append(out, [2]string{k, v})
		}
		sort.Slice(out[first:], func(i, j int) bool { return out[first+i][0] < out[first+j][0] })
	}
	return out
}
