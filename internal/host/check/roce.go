package check

import (
	"fmt"
	"strings"
)

// roceRows have the word "roce" in their IDs; they are in the same group as RDMA's.
var roceRows = []Row{
	{
		ID: "roce.mtu", Group: RDMA, Title: "MTU of RoCE's interfaces",
		Reads: "/sys/class/net/IF/mtu of each Ethernet RDMA port", Wants: "9000 (RDMA then uses 4096)",
		Why:    "RDMA's own MTU is the largest of 256 to 4096 that fits the interface's: with 1500 it is 1024.",
		Source: "vendors' RoCE guides; VMware ConnectX study's RoCE set-up",
		Costs:  "four times the packets of large messages",
		Fix:    "ip link set IF mtu 9000, and on the switch",
		Needs:  Nothing, Profiles: withRDMA,
		look: func(f *facts) finding {
			return perRoCE(f, func(p rdmaPort) Item {
				n, ok := f.number("/sys/class/net/" + p.net + "/mtu")
				switch {
				case !ok:
					return Item{Status: Unknown, Found: "no interface"}
				case n < 9000:
					return Item{Status: Warn, Found: fmt.Sprintf("%s has %d, RDMA then %d", p.net, n, activeMTU(int(n)))}
				}
				return Item{Status: OK, Found: fmt.Sprintf("%s has %d", p.net, n)}
			})
		},
		writes: func(f *facts) []Write {
			var list []Write
			for _, p := range f.rocePorts() {
				file := "/sys/class/net/" + p.net + "/mtu"
				if n, ok := f.number(file); ok && p.net != "" && n < 9000 {
					list = append(list, Write{File: file, Value: "9000"})
				}
			}
			return list
		},
	},
	{
		ID: "roce.flow-control", Group: RDMA, Title: "lossless Ethernet",
		Reads: "dcb pfc show dev IF of each Ethernet RDMA port", Wants: "priority flow control on for one priority",
		Why:    "A lost packet of RDMA is sent again with all that follow it.",
		Source: "vendors' RoCE guides (PFC, ECN); the switch's side cannot be checked from here",
		Costs:  "bandwidth and latency that collapse under load",
		Fix:    "dcb pfc set dev IF prio-pfc all:off 3:on, and the same on the switch",
		Needs:  Other, Profiles: []Profile{VMHost, SlurmNode, RoCE},
		look: func(f *facts) finding {
			return perRoCE(f, func(p rdmaPort) Item {
				if p.net == "" {
					return Item{Status: Unknown, Found: "no interface"}
				}
				out, err := f.ask("dcb", "pfc", "show", "dev", p.net)
				if err != nil {
					return Item{Status: Unknown, Found: p.net + " cannot be asked (dcb pfc show)"}
				}
				on, ok := parsePFC(out)
				switch {
				case !ok:
					return Item{Status: Unknown, Found: p.net + ": dcb's answer is not understood"}
				case on == "":
					return Item{Status: Warn, Found: p.net + ": off for every priority"}
				}
				return Item{Status: OK, Found: p.net + ": on for priority " + on + "; the switch is not checked"}
			})
		},
	},
	{
		ID: "roce.version", Group: RDMA, Title: "RoCE v2",
		Reads: "gid_attrs/types of each Ethernet RDMA port", Wants: "a GID of type RoCE v2",
		Why:    "Version 2 is routed and spreads over paths; version 1 stays in one Ethernet segment.",
		Source: "InfiniBand Architecture Specification, annex A17",
		Costs:  "no connection between subnets",
		Fix:    "give the interface an IP address; cma_roce_mode or the job's UCX_IB_GID_INDEX choose the GID",
		Needs:  Other, Profiles: withRDMA,
		look: func(f *facts) finding {
			return perRoCE(f, func(p rdmaPort) Item {
				v1 := false
				const most = 16 // number of GIDs to examine: the first ones are the interface's
				types := f.numbered(p.dir+"gid_attrs/types", "")
				for _, n := range types[:min(most, len(types))] {
					switch f.line(p.dir + "gid_attrs/types/" + n) {
					case "RoCE v2":
						return Item{Status: OK, Found: "RoCE v2, GID " + n}
					case "IB/RoCE v1", "RoCE v1":
						v1 = true
					}
				}
				if v1 {
					return Item{Status: Warn, Found: "RoCE v1 only"}
				}
				return Item{Status: Unknown, Found: "no GID"}
			})
		},
	},
}

// perRoCE returns the finding of a row that examines each Ethernet port.
func perRoCE(f *facts, look func(rdmaPort) Item) finding {
	var items []Item
	for _, p := range f.rocePorts() {
		i := look(p)
		i.Name = p.name
		items = append(items, i)
	}
	return worst(items, found(NotApplicable, "no RDMA port on Ethernet"))
}

// activeMTU returns the RDMA MTU of an interface: the largest of InfiniBand's MTUs that leaves room for the headers,
// some 60 bytes (drivers/infiniband/core, iboe_get_mtu).
func activeMTU(mtu int) int {
	best := 0
	for _, m := range []int{256, 512, 1024, 2048, 4096} {
		if m <= mtu-60 {
			best = m
		}
	}
	return best
}

// parsePFC parses dcb pfc show: a line "prio-pfc 0:off 1:off … 3:on …". It returns the priorities that are on.
func parsePFC(s string) (on string, ok bool) {
	for _, line := range strings.Split(s, "\n") {
		rest, found := strings.CutPrefix(strings.TrimSpace(line), "prio-pfc ")
		if !found {
			continue
		}
		ok = true
		for _, w := range strings.Fields(rest) {
			if prio, found := strings.CutSuffix(w, ":on"); found && len(prio) == 1 {
				on += prio
			}
		}
	}
	return on, ok
}
