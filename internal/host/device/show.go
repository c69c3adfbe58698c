package device

import (
	"bufio"
	"context"
	"os/exec"
	"sort"
	"strings"
)

// Details are all that is known of one function.
type Details struct {
	*Function
	// Attributes of a VF that the kernel tells (Attributes).
	Attributes map[string]string `json:"attributes,omitempty"`
	// Eswitch is the mode of a PF's eswitch, "legacy" or "switchdev"; "" where its driver has none.
	Eswitch string `json:"eswitch,omitempty"`
	// Firmware are the settings of a Mellanox card that bear on VMs, by mstconfig's names.
	FirmwareSettings map[string]string `json:"firmwareSettings,omitempty"`
}

// Show gives the details of a function by any of its names.
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
	if f.Kind != VF && f.Vendor == Mellanox && h.root == "" {
		d.FirmwareSettings = mstconfig(ctx, f.Address)
	}
	return d, nil
}

// Settings gives attributes and the firmware's settings, sorted, for a table.
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

// firmwareNames are the settings that bear on VMs (NVIDIA's user manual of mlxconfig).
var firmwareNames = map[string]bool{
	"SRIOV_EN": true, "NUM_OF_VFS": true, "LINK_TYPE_P1": true, "LINK_TYPE_P2": true, "ADVANCED_PCI_SETTINGS": true,
	"PCI_WR_ORDERING": true, "NUM_PF_MSIX": true, "NUM_VF_MSIX": true, "UCTX_EN": true,
}

// mstconfig asks a card's firmware; nil where the program is not there or gives no answer.
func mstconfig(ctx context.Context, at string) map[string]string {
	prog, err := exec.LookPath("mstconfig")
	if err != nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, prog, "-d", at, "query").Output()
	if err != nil {
		return nil
	}
	return firmwareSettings(string(out))
}

// firmwareSettings reads mstconfig's answer: lines of a name and a value, such as
// "LINK_TYPE_P1   IB(1)".
func firmwareSettings(text string) map[string]string {
	found := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) > 0 && w[0] == "*" { // a setting that is not the default
			w = w[1:]
		}
		if len(w) >= 2 && firmwareNames[w[0]] && len(w[len(w)-1]) < 64 {
			found[w[0]] = printable(w[len(w)-1])
		}
	}
	return found
}
