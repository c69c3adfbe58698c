package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

var rdmaRows = []Row{
	{
		ID: "rdma.device", Group: RDMA, Title: "an RDMA device",
		Reads: ibDir + "*", Wants: "one at least",
		Why:    "MPI between hosts is near native only over verbs.",
		Source: "NASA AT5 report, sections 2 and 3.1.1; VMware FDR paper",
		Costs:  "\"a factor of 10x or more\" in latency over emulated networks (NASA AT5 report); nothing on a single host",
		Fix:    "load the card's driver (modprobe mlx5_ib, irdma, bnxt_re); without a card, soft RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev IF",
		Needs:  Other, Profiles: withRDMA,
		look: func(f *facts) finding {
			var list []string
			soft := 0
			for _, d := range f.rdmaDevices() {
				if d.pci == "" {
					soft++
				}
				list = append(list, d.name)
			}
			cards := 0
			for _, d := range f.devices() {
				if d.class>>8 == 0x0207 || d.vendor == "0x15b3" {
					cards++
				}
			}
			switch {
			case len(list) == 0 && cards > 0:
				return found(Fail, "%s, but no RDMA device: no driver, or handed to VMs", words.Count(cards, "card", "cards"))
			case len(list) == 0:
				return found(Warn, "none: MPI between hosts runs over TCP")
			case soft == len(list):
				return found(Warn, "%s: in software", strings.Join(list, " "))
			}
			return found(OK, "%s", strings.Join(list, " "))
		},
	},
	{
		ID: "rdma.state", Group: RDMA, Title: "ports are active",
		Reads: "state of each port below " + ibDir, Wants: "ACTIVE",
		Why:    "A port in INIT has a cable and no subnet manager, one in DOWN no cable, or a switch port that is off.",
		Source: "InfiniBand Architecture Specification, volume 1, section 14.2.5.6 (PortState)",
		Costs:  "the port",
		Fix:    "INIT: start a subnet manager (opensm) on one host or the switch, for VFs with virt_enabled 2 in opensm.conf; DOWN: cable and switch port, ip link set IF up",
		Needs:  Other, Profiles: withRDMA,
		look: perPort(func(_ *facts, p rdmaPort) Item {
			_, word, ok := strings.Cut(p.state, ": ")
			switch {
			case !ok:
				return Item{Status: Unknown, Found: "no state"}
			case word == "ACTIVE":
				return Item{Status: OK, Found: word}
			}
			return Item{Status: Fail, Found: word}
		}),
	},
	{
		ID: "rdma.rate", Group: RDMA, Title: "links run with all lanes",
		Reads: "rate of each port below " + ibDir, Wants: "4X or more, equal on ports of equal cards",
		Why:    "A bad cable or transceiver makes a link train with fewer lanes or at a lower rate, and works on.",
		Source: "InfiniBand Architecture Specification, volume 1 (LinkWidthActive)",
		Costs:  "bandwidth in proportion, and latency of larger messages",
		Fix:    "reseat or change the cable; mlxlink -d BDF -c shows errors",
		Needs:  Other, Profiles: withRDMA,
		look: func(f *facts) finding {
			best := map[string]int{}
			for _, d := range f.rdmaDevices() {
				board := f.line(d.dir() + "board_id")
				for _, p := range d.ports {
					if gb, _, ok := parseRate(p.rate); ok && board != "" && strings.HasSuffix(p.state, "ACTIVE") {
						best[board+p.layer] = max(best[board+p.layer], gb)
					}
				}
			}
			return perPort(func(f *facts, p rdmaPort) Item {
				gb, lanes, ok := parseRate(p.rate)
				if !strings.HasSuffix(p.state, "ACTIVE") {
					return Item{}
				}
				name, _, _ := strings.Cut(p.name, "/")
				most := best[f.line(ibDir+name+"/board_id")+p.layer]
				software := f.line(ibDir+name+"/board_id") == "" && f.link(ibDir+name+"/device") == ""
				switch {
				case !ok:
					return Item{Status: Unknown, Found: "rate " + p.rate}
				case gb < most:
					return Item{Status: Warn, Found: fmt.Sprintf("%s, where a port of an equal card has %d Gb/s", p.rate, most)}
				case lanes < 4 && p.layer == "InfiniBand" && !software:
					return Item{Status: Warn, Found: p.rate}
				}
				return Item{Status: OK, Found: p.rate}
			})(f)
		},
	},
	{
		ID: "rdma.guid", Own: true, Group: RDMA, Title: "GUIDs are set and unique",
		Reads: "node_guid of each device below " + ibDir, Wants: "not 0, each another",
		Why:    "A VF without a GUID is refused by the subnet manager; two with the same one take each other's traffic.",
		Source: "vendors' SR-IOV guides (ip link set PF vf N node_guid)",
		Costs:  "the VF's link never comes up",
		Fix:    "nearmetal device set VF, or ip link set PF vf N node_guid GUID and port_guid GUID, then rebind the VF",
		Needs:  Other, Profiles: withRDMA,
		look: func(f *facts) finding {
			seen := map[string]string{}
			var items []Item
			for _, d := range f.rdmaDevices() {
				guid := f.line(d.dir() + "node_guid")
				item := Item{d.name, OK, guid}
				switch {
				case guid == "":
					item.Status, item.Found = Unknown, "no node_guid"
				case strings.Trim(guid, "0:") == "":
					item.Status = Fail
				case seen[guid] != "" && f.line(ibDir+seen[guid]+"/sys_image_guid") != f.line(d.dir()+"sys_image_guid"):
					item.Status, item.Found = Fail, guid+", as "+seen[guid]
				}
				seen[guid] = d.name
				items = append(items, item)
			}
			return worst(items, noCard(f))
		},
	},
	{
		ID: "rdma.vf-policy", Own: true, Group: RDMA, Title: "links of InfiniBand VFs",
		Reads: "sriov/N/policy of each InfiniBand card in /sys/bus/pci/devices, or ip -json link show dev IF", Wants: "Follow (auto) for each VF",
		Why:    "A VF has the policy Down from the firmware: its port stays DOWN whatever the cable and the subnet manager do.",
		Source: "vendors' SR-IOV guides (echo Follow > sriov/0/policy); the kernel's drivers/infiniband/hw/mlx5/ib_virt.c",
		Costs:  "the VF's link never comes up",
		Fix:    "nearmetal device set VF --policy follow, or ip link set PF vf N state auto",
		Needs:  Nothing, Profiles: onVMHosts,
		look: func(f *facts) finding {
			var items []Item
			for _, d := range f.cards() {
				n, _ := f.number(d.dir() + "sriov_numvfs")
				if n <= 0 || !f.onInfiniBand(d) {
					continue
				}
				item := Item{d.label(), OK, words.Count(int(n), "VF follows the card", "VFs follow the card")}
				switch down, known := f.downVFs(d, int(n)); {
				case !known:
					item.Status, item.Found = Unknown, "no policy to be seen (ip link show needs the card's IPoIB interface: modprobe ib_ipoib)"
				case down > 0:
					item.Status, item.Found = Fail, fmt.Sprintf("Down for %d of %s", down, words.Count(int(n), "VF", "VFs"))
				}
				items = append(items, item)
			}
			return worst(items, found(NotApplicable, "no VFs of an InfiniBand card"))
		},
	},
	{
		ID: "rdma.representors", Own: true, Group: RDMA, Title: "VFs of a card in switchdev mode",
		Reads: "phys_port_name and master of the interfaces of each card in /sys/class/net", Wants: "each VF's representor in a bridge or Open vSwitch",
		Why:    "In switchdev mode the card forwards a VF's frames only as the host says for its representor.",
		Source: "kernel documentation: networking/switchdev, networking/representors",
		Costs:  "the VF's frames go nowhere",
		Fix:    "ip link set REPRESENTOR master BRIDGE up for each, and for the card's interface; or nearmetal device set PF --eswitch legacy",
		Needs:  Nothing, Profiles: onVMHosts,
		look: perCardOr(found(NotApplicable, "no card in switchdev mode"), func(f *facts, d *pciDevice) Item {
			apart, all := 0, 0
			for _, n := range d.net {
				// pf0vf1, or c1pf0vf1 of a SmartNIC's host
				if name := f.line("/sys/class/net/" + n + "/phys_port_name"); !strings.Contains(name, "pf") || !strings.Contains(name, "vf") {
					continue
				}
				all++
				if !slices.Contains(f.list("/sys/class/net/"+n), "master") {
					apart++
				}
			}
			switch {
			case all == 0:
				return Item{}
			case apart > 0:
				return Item{Status: Warn, Found: fmt.Sprintf("%d of %s in no bridge (rules of tc are not seen)", apart, words.Count(all, "representor", "representors"))}
			}
			return Item{Status: OK, Found: words.Count(all, "representor in a bridge", "representors in a bridge")}
		}),
	},
	{
		ID: "rdma.firmware", Group: RDMA, Title: "equal cards have equal firmware",
		Reads: "fw_ver and board_id (PSID) of each device below " + ibDir, Wants: "one version for each PSID",
		Why:    "Cards of one kind with different firmware differ in speed and faults; the study compares version and PSID with the maker's list first.",
		Source: "VMware ConnectX study, section 2.2.1 (mlxfwmanager, PSID); NASA AT5 report, section 4.1 step 8",
		Costs:  "faults that only some hosts have",
		Fix:    "mstfwmanager --online -u -d BDF, or mstflint -d BDF -i FILE burn; between hosts: nearmetal check --fleet",
		Needs:  Setup, Profiles: withRDMA,
		look: func(f *facts) finding {
			versions := map[string]map[string]bool{}
			var items []Item
			for _, d := range f.rdmaDevices() {
				fw, board := f.line(d.dir()+"fw_ver"), f.line(d.dir()+"board_id")
				if fw == "" || board == "" {
					continue
				}
				if versions[board] == nil {
					versions[board] = map[string]bool{}
				}
				versions[board][fw] = true
				items = append(items, Item{d.name, OK, fw + " " + board})
			}
			for i := range items {
				_, board, _ := strings.Cut(items[i].Found, " ")
				if len(versions[board]) > 1 {
					items[i].Status = Warn
				}
			}
			return worst(items, found(NotApplicable, "no device with firmware"))
		},
	},
	{
		ID: "rdma.pcie-link", Group: RDMA, Title: "PCI Express link of the card",
		Reads: "current_ and max_link_speed, current_ and max_link_width of each card in /sys/bus/pci/devices", Wants: "speed and width of the card's maximum",
		Why:    "A card in a narrow or slow slot, or badly seated, cannot carry its network's bandwidth.",
		Source: "vendors' RDMA tuning guides (lspci LnkSta)",
		Costs:  "bandwidth in proportion",
		Fix:    "reseat the card, take a slot with all its lanes; firmware setup: link speed Auto",
		Needs:  Other, Profiles: withRDMA,
		look: perCard(func(f *facts, d *pciDevice) Item {
			speed, most := f.line(d.dir()+"current_link_speed"), f.line(d.dir()+"max_link_speed")
			width, widest := f.line(d.dir()+"current_link_width"), f.line(d.dir()+"max_link_width")
			text := speed + " x" + width
			a, ok1 := parseSpeed(speed)
			b, ok2 := parseSpeed(most)
			w, err1 := strconv.Atoi(width)
			wmax, err2 := strconv.Atoi(widest)
			if !ok1 || !ok2 || err1 != nil || err2 != nil || w == 0 || wmax > 32 {
				return Item{Status: Unknown, Found: "no link: emulated, or a VM does not see it"}
			}
			if a < b || w < wmax {
				return Item{Status: Warn, Found: fmt.Sprintf("%s of %s x%s", text, most, widest)}
			}
			return Item{Status: OK, Found: text}
		}),
	},
	{
		ID: "rdma.read-request", Group: RDMA, Title: "largest read request of the card",
		Reads: "MaxReadReq in the PCI Express Device Control register (config of each card; root only)", Wants: "512 bytes or more",
		Why:    "The card fetches what it sends in requests of this size.",
		Source: "vendors' tuning guides (setpci 68.w; 4096 for large messages); PCI Express Base Specification, section 7.5.3.4",
		Costs:  "bandwidth of large messages",
		Fix:    "setpci -s BDF CAP_EXP+8.w=5000:7000 (4096 bytes; 2000:7000 is 512)",
		Needs:  Other, Profiles: onHosts,
		look: perCard(func(f *facts, d *pciDevice) Item {
			config, err := f.read(d.dir() + "config")
			p, ok := parsePCIe(config)
			switch {
			case err != nil || len(config) < 256:
				return Item{Status: Unknown, Found: "only root reads it"}
			case !ok:
				return Item{Status: NotApplicable, Found: "not PCI Express"}
			case p.request < 512:
				return Item{Status: Warn, Found: fmt.Sprintf("%d bytes, payload %d", p.request, p.payload)}
			}
			return Item{Status: OK, Found: fmt.Sprintf("%d bytes, payload %d", p.request, p.payload)}
		}),
	},
	{
		ID: "rdma.locality", Group: RDMA, Title: "the card's node is known",
		Reads: "numa_node of each card in /sys/bus/pci/devices", Wants: "not -1, where there are several nodes",
		Why:    "A VM belongs on the node of its card; without the firmware's word the plan cannot know which that is.",
		Source: "VMware FDR paper, vSphere Settings (numa.nodeAffinity: the socket to which the device is attached)",
		Costs:  "a hop between packages for each message",
		Fix:    "a firmware update that describes proximity (ACPI _PXM); until then placement in the cluster file",
		Needs:  Setup, Profiles: anywhere,
		look: perCard(func(f *facts, d *pciDevice) Item {
			n, ok := f.number(d.dir() + "numa_node")
			switch {
			case !ok:
				return Item{Status: Unknown, Found: "no numa_node"}
			case n < 0 && len(f.numbered("/sys/devices/system/node", "node")) > 1:
				return Item{Status: Warn, Found: "-1: not known"}
			case n < 0:
				return Item{Status: OK, Found: "the only node"}
			}
			return Item{Status: OK, Found: fmt.Sprintf("node %d", n)}
		}),
	},
	{
		ID: "rdma.vfs", Group: RDMA, Title: "virtual functions",
		Reads: "sriov_totalvfs and sriov_numvfs of each card in /sys/bus/pci/devices", Wants: "some are made",
		Why:    "Each VM gets a VF of the card; a job cannot make them, an administrator or this fix can.",
		Source: "NASA AT5 report, section 4.1 steps 8 and 9 (num_vfs=8); VMware ConnectX study, section 2.2.3",
		Costs:  "VMs without a VF: MPI between hosts runs over an emulated network",
		Fix:    "nearmetal device enable-vfs PF N, or echo N >/sys/bus/pci/devices/BDF/sriov_numvfs",
		Needs:  Nothing, Profiles: onVMHosts,
		Conflict: "the VMware ConnectX study sets SRIOV_EN=0 and clears num_vfs, for whole cards in VMs (DirectPath); " +
			"with one VM a host that is right, with several it is not",
		look: func(f *facts) finding {
			var items []Item
			for _, d := range f.cards() {
				if d.virtual() {
					continue
				}
				n, _ := f.number(d.dir() + "sriov_numvfs")
				item := Item{d.label(), OK, fmt.Sprintf("%d of %d", n, d.total)}
				switch {
				case d.total == 0:
					item.Status, item.Found = Warn, "SR-IOV is off in the card's firmware"
				case n == 0:
					item.Status = Warn
				}
				items = append(items, item)
			}
			f1 := worst(items, noCard(f))
			if strings.Contains(f1.found, "SR-IOV is off") {
				return f1.fixedBy("mstconfig -d BDF set SRIOV_EN=1 NUM_OF_VFS=8, then a reboot (mstfwreset -d BDF reset may do)")
			}
			return f1
		},
		writes: func(f *facts) []Write {
			var list []Write
			for _, d := range f.cards() {
				const most = 8 // as many as the report makes
				if n, ok := f.number(d.dir() + "sriov_numvfs"); ok && n == 0 && d.total > 0 {
					list = append(list, Write{File: d.dir() + "sriov_numvfs", Value: strconv.Itoa(min(most, d.total))})
				}
			}
			return list
		},
	},
	{
		ID: "rdma.settings", Group: RDMA, Title: "settings in the card's firmware",
		Reads: "mstconfig -d BDF query of each Mellanox card: SRIOV_EN, NUM_OF_VFS, LINK_TYPE_P1, ADVANCED_PCI_SETTINGS", Wants: "SRIOV_EN=1 and NUM_OF_VFS above 0",
		Why:    "The card offers VFs, InfiniBand or Ethernet as its firmware is set, whatever the driver wants.",
		Source: "VMware ConnectX study, section 2.2.3 (mlxconfig); NASA AT5 report, section 4.1 step 8 (sriov_en, total_vfs)",
		Costs:  "no VFs, or the wrong link",
		Fix:    "mstconfig -d BDF set SRIOV_EN=1 NUM_OF_VFS=8; LINK_TYPE_P1=1 for InfiniBand, 2 for Ethernet; then a reboot",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			var items []Item
			for _, d := range f.cards() {
				if d.vendor != "0x15b3" {
					continue
				}
				out, err := f.ask("mstconfig", "-d", d.address, "query")
				if err != nil {
					items = append(items, Item{d.label(), Unknown, "mstconfig (of mstflint): " + printable(err.Error())})
					continue
				}
				items = append(items, judgeSettings(d.label(), parseMstconfig(out)))
			}
			return worst(items, found(NotApplicable, "no Mellanox card"))
		},
	},
	{
		ID: "rdma.write-combining", Group: RDMA, Title: "write combining to the card",
		Reads: "resourceN_wc of each card in /sys/bus/pci/devices; flag pat in /proc/cpuinfo, nopat in /proc/cmdline", Wants: "pat, and a window that can be combined",
		Why:    "Small messages are written to the card in one burst of 64 bytes instead of eight writes.",
		Source: "VMware FDR paper, RDMA (write combining: 0.4 to 0.8 µs of latency)",
		Costs:  "0.4 to 0.8 µs a small message (VMware FDR paper, figures 1 and 2)",
		Fix:    "remove nopat from the kernel's command line",
		Needs:  Reboot, Profiles: withRDMA,
		look: func(f *facts) finding {
			if _, off := f.arg("nopat"); off {
				return found(Fail, "nopat on the kernel's command line")
			}
			if f.cpuField("flags") != "" && !f.cpuFlag("pat") {
				return found(Fail, "the CPU shows no pat")
			}
			return perCard(func(f *facts, d *pciDevice) Item {
				if len(d.rdma) == 0 && d.class>>8 != 0x0207 {
					return Item{}
				}
				for _, name := range f.list(d.dir()) {
					if strings.HasPrefix(name, "resource") && strings.HasSuffix(name, "_wc") {
						return Item{Status: OK, Found: name}
					}
				}
				return Item{Status: Warn, Found: "no window can be combined (no prefetchable BAR)"}
			})(f)
		},
	},
	{
		ID: "rdma.firewall", Group: RDMA, Title: "no firewall between ranks",
		Reads: "the processes' names (firewalld, ufw)", Wants: "none on the MPI network",
		Why:    "MPI opens connections on any port to start up, and verbs connection managers use IP.",
		Source: "NASA AT5 report, section 4.1 step 4 and section 4.1.1 step 2 (disabled firewalls)",
		Costs:  "jobs over several hosts that hang at their start",
		Fix:    "firewall-cmd --zone=trusted --add-interface=IF --permanent for the MPI network's interface, or systemctl disable --now firewalld",
		Needs:  Restart, Profiles: anywhere,
		look: func(f *facts) finding {
			if len(f.numbered("/proc", "")) == 0 {
				return found(Unknown, "no processes in the tree")
			}
			for _, name := range []string{"firewalld", "ufw"} {
				if len(f.processes(name)) > 0 {
					return found(Warn, "%s is running", name)
				}
			}
			return found(OK, "none is running")
		},
	},
}

// downVFs returns how many of the n VFs of an InfiniBand card have the policy Down; known is false if neither the
// driver's files nor the kernel report a policy.
func (f *facts) downVFs(d *pciDevice, n int) (down int, known bool) {
	const most = 256 // maximum VFs of a card
	for i := range min(n, most) {
		policy := f.line(fmt.Sprintf("%ssriov/%d/policy", d.dir(), i))
		known = known || policy != ""
		if strings.HasPrefix(policy, "Down") {
			down++
		}
	}
	if known || len(d.net) == 0 {
		return down, known
	}
	out, err := f.ask("ip", "-json", "link", "show", "dev", d.net[0])
	if err != nil {
		return 0, false
	}
	return parseVFStates(out)
}

// parseVFStates parses ip -json link show of one interface: how many VFs have the link state "disable"; known is
// false if it lists no VF.
func parseVFStates(s string) (down int, known bool) {
	var links []struct {
		VFs []struct {
			State string `json:"link_state"`
		} `json:"vfinfo_list"`
	}
	if json.Unmarshal([]byte(s), &links) != nil {
		return 0, false
	}
	for _, l := range links {
		for _, vf := range l.VFs {
			known = known || vf.State != ""
			if vf.State == "disable" {
				down++
			}
		}
	}
	return down, known
}

// parseRate reads a port's rate, such as "100 Gb/sec (4X EDR)": Gb/s (2.5 counts as 2) and lanes.
func parseRate(s string) (gb, lanes int, ok bool) {
	number, rest, found := strings.Cut(s, " Gb/sec (")
	width, _, found2 := strings.Cut(rest, "X")
	rate, err := strconv.ParseFloat(number, 64)
	lanes, err2 := strconv.Atoi(width)
	if !found || !found2 || err != nil || err2 != nil || !(rate >= 0 && rate < 1e6) || lanes < 0 {
		return 0, 0, false
	}
	return int(rate), lanes, true
}

// parseSpeed reads a link's speed, such as "8.0 GT/s PCIe", in tenths of GT/s.
func parseSpeed(s string) (int, bool) {
	number, _, ok := strings.Cut(s, " GT/s")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0 && v < 10000) {
		return 0, false
	}
	return int(v * 10), true
}

// parseMstconfig parses the settings of mstconfig query: lines "NAME VALUE", with values such as True(1) or 8. Other
// lines are ignored.
func parseMstconfig(s string) map[string]string {
	settings := map[string]string{}
	for _, line := range strings.Split(s, "\n") {
		f := strings.Fields(strings.TrimLeft(line, "* \t"))
		if len(f) == 2 && strings.ToUpper(f[0]) == f[0] && len(settings) < 4096 {
			settings[printable(f[0])] = printable(f[1])
		}
	}
	return settings
}

// judgeSettings judges one card's settings.
func judgeSettings(name string, settings map[string]string) Item {
	var list []string
	for _, key := range []string{"SRIOV_EN", "NUM_OF_VFS", "LINK_TYPE_P1", "LINK_TYPE_P2", "ADVANCED_PCI_SETTINGS"} {
		if v := settings[key]; v != "" {
			list = append(list, key+"="+v)
		}
	}
	sort.Strings(list)
	if len(list) == 0 {
		return Item{name, Unknown, "mstconfig's answer is not understood"}
	}
	item := Item{name, OK, strings.Join(list, " ")}
	if v := settings["SRIOV_EN"]; strings.Contains(v, "False") || v == "0" || settings["NUM_OF_VFS"] == "0" {
		item.Status = Warn
	}
	return item
}
