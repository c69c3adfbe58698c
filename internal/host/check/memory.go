package check

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

const (
	nodeDir = "/sys/devices/system/node/"
	thpDir  = "/sys/kernel/mm/transparent_hugepage/"
)

var memoryRows = []Row{
	{
		ID: "memory.hugepages", Own: true, Group: Memory, Title: "huge pages on every node",
		Reads: "/sys/devices/system/node/node*/hugepages/hugepages-*/{nr,free}_hugepages", Wants: "a pool of free 2 MiB or 1 GiB pages on each node with memory",
		Why:    "A VM's memory in huge pages needs fewer translations (two dimensions of page tables in a VM), and the IOMMU gets large pages too.",
		Source: "NASA AT5 report, section 4.1 step 15 (22 GB of 24 GB) and section 5.1 (STREAM with hugepages at the host's bandwidth); VMware FDR paper, Large Intel VT-d Pages",
		Costs:  "TLB misses: programs with random access to large memory lose most",
		Fix:    "echo N >/sys/devices/system/node/nodeM/hugepages/hugepages-2048kB/nr_hugepages; 1 GiB pages: hugepagesz=1G hugepages=N on the command line",
		Needs:  Nothing, Profiles: onVMHosts,
		look: func(f *facts) finding {
			h := f.host()
			if h == nil {
				return found(Unknown, "%v", f.topoErr)
			}
			if f.huge == 0 && f.emulates() {
				return found(NotApplicable, "VMs are emulated here, and gain nothing from huge pages")
			}
			var items []Item
			for _, n := range h.Nodes {
				if n.MemoryBytes == 0 || n.GPU != "" {
					continue
				}
				var list []string
				free := 0
				for _, p := range n.Pools {
					if p.Total > 0 {
						list = append(list, fmt.Sprintf("%d of %d free (%s)", p.Free, p.Total, words.Bytes(p.PageBytes)))
						free += p.Free
					}
				}
				item := Item{fmt.Sprintf("node %d", n.ID), OK, strings.Join(list, ", ")}
				switch {
				case len(list) == 0:
					item.Status, item.Found = Warn, "none"
				case free == 0:
					item.Status = Warn
				}
				items = append(items, item)
			}
			return worst(items, found(Unknown, "no node with memory"))
		},
		writes: hugePageWrites,
	},
	{
		ID: "memory.thp", Group: Memory, Title: "transparent huge pages",
		Reads: thpDir + "enabled", Wants: "madvise or always",
		Why:    "QEMU asks for them for a VM's memory that is not from a pool, and programs in a VM get them for their heaps.",
		Source: "NASA AT5 report, section 3.2.2",
		Costs:  "TLB misses of 4 KiB pages; NASA's AT5 report measured stock VMs well below tuned ones in STREAM (figure 8)",
		Fix:    "echo madvise >" + thpDir + "enabled",
		Needs:  Nothing, Profiles: anywhere,
		Conflict: "tuned's hpc-compute sets always, its network-latency sets never: with a profile of the latter kind on top this row is undone again; " +
			"madvise serves both, since only what asks gets huge pages",
		look:   wants(thpDir+"enabled", Warn, "madvise", "always"),
		writes: writes(thpDir+"enabled", "madvise"),
	},
	{
		ID: "memory.thp-defrag", Group: Memory, Title: "huge pages are not made while a program waits",
		Reads: thpDir + "defrag", Wants: "madvise, defer, defer+madvise or never",
		Why:    "With always any page fault may stop to compact memory.",
		Source: "kernel documentation: admin-guide/mm/transhuge",
		Costs:  "page faults of milliseconds when memory is fragmented",
		Fix:    "echo defer+madvise >" + thpDir + "defrag",
		Needs:  Nothing, Profiles: anywhere,
		look:   wants(thpDir+"defrag", Warn, "madvise", "defer", "defer+madvise", "never"),
		writes: writes(thpDir+"defrag", "defer+madvise"),
	},
	{
		ID: "memory.shmem-huge", Group: Memory, Title: "huge pages for shared memory",
		Reads: thpDir + "shmem_enabled", Wants: "advise, within_size or always, where there is no pool of huge pages",
		Why:    "The region between VMs and VMs' shared memory are in shared memory; without a pool these are its only huge pages.",
		Source: "kernel documentation: admin-guide/mm/transhuge (shmem)",
		Costs:  "TLB misses on messages through the region",
		Fix:    "echo advise >" + thpDir + "shmem_enabled",
		Needs:  Nothing, Profiles: onVMHosts,
		look:   wants(thpDir+"shmem_enabled", Warn, "advise", "within_size", "always", "force"),
		writes: writes(thpDir+"shmem_enabled", "advise"),
	},
	{
		ID: "memory.ksm", Group: Memory, Title: "pages are not merged",
		Reads: "/sys/kernel/mm/ksm/run", Wants: "0 or 2",
		Why:    "Merging scans VMs' memory, breaks huge pages up and makes the first write to a merged page a fault.",
		Source: "tuned: realtime-virtual-host; the hosts of NASA's report give each VM memory of its own",
		Costs:  "CPU time of ksmd, page faults in the VMs, and a side channel between them",
		Fix:    "echo 2 >/sys/kernel/mm/ksm/run (stops and unmerges); systemctl disable --now ksm ksmtuned",
		Needs:  Nothing, Profiles: onVMHosts,
		look: func(f *facts) finding {
			v := f.line("/sys/kernel/mm/ksm/run")
			switch {
			case v == "":
				return f.absent()
			case v == "1":
				return found(Warn, "1 (running)")
			case len(f.processes("ksmtuned")) > 0:
				return found(Warn, "%s, but ksmtuned is running and switches it on when memory is short", v)
			}
			return found(OK, "%s", v)
		},
		writes: func(f *facts) []Write {
			if f.line("/sys/kernel/mm/ksm/run") == "1" {
				return []Write{{File: "/sys/kernel/mm/ksm/run", Value: "2"}}
			}
			return nil
		},
	},
	{
		ID: "memory.numa-balancing", Group: Memory, Title: "automatic NUMA balancing",
		Reads: "/proc/sys/kernel/numa_balancing", Wants: "0",
		Why:    "nearmetal binds memory to its node; balancing unmaps pages to see who uses them and finds nothing to move.",
		Source: "VMware vNUMA paper (placement is fixed); tuned: realtime-virtual-host",
		Costs:  "page faults in every VM and program, again and again",
		Fix:    "sysctl -w kernel.numa_balancing=0",
		Needs:  Nothing, Profiles: anywhere,
		Conflict: "tuned's throughput profiles leave it on, for programs that nobody places",
		look:     wants("/proc/sys/kernel/numa_balancing", Warn, "0"),
		writes:   writes("/proc/sys/kernel/numa_balancing", "0"),
	},
	{
		ID: "memory.zone-reclaim", Group: Memory, Title: "memory of other nodes before reclaim",
		Reads: "/proc/sys/vm/zone_reclaim_mode", Wants: "0",
		Why:    "With other values a full node drops its cache and swaps before memory of a neighbour is taken.",
		Source: "kernel documentation: admin-guide/sysctl/vm",
		Costs:  "stalls in page faults when a node is full",
		Fix:    "sysctl -w vm.zone_reclaim_mode=0",
		Needs:  Nothing, Profiles: anywhere,
		Conflict: "Slurm sites that pin every job's memory set it to 1 on purpose, to keep a job's cache local",
		look:     wants("/proc/sys/vm/zone_reclaim_mode", Warn, "0"),
		writes:   writes("/proc/sys/vm/zone_reclaim_mode", "0"),
	},
	{
		ID: "memory.swap", Group: Memory, Title: "VMs are not swapped out",
		Reads: "/proc/swaps, /proc/sys/vm/swappiness", Wants: "no swap, or swappiness of 10 or less",
		Why:    "A VM's page that is on a disk makes every rank wait; the papers reserve all memory.",
		Source: "VMware ConnectX study (all guest memory reserved); tuned: throughput-performance (vm.swappiness=10)",
		Costs:  "milliseconds for each page that comes back",
		Fix:    "swapoff -a, or sysctl -w vm.swappiness=10",
		Needs:  Nothing, Profiles: anywhere,
		look: func(f *facts) finding {
			s, err := f.read("/proc/swaps")
			n, ok := f.number("/proc/sys/vm/swappiness")
			if err != nil {
				return found(Unknown, "/proc/swaps cannot be read")
			}
			areas := max(0, len(strings.Split(strings.TrimSpace(s), "\n"))-1)
			switch {
			case areas == 0:
				return found(OK, "no swap")
			case ok && n <= 10:
				return found(OK, "%s, swappiness %d", words.Count(areas, "swap area", "swap areas"), n)
			}
			return found(Warn, "%s, swappiness %d", words.Count(areas, "swap area", "swap areas"), n)
		},
		writes: writes("/proc/sys/vm/swappiness", "10"),
	},
	{
		ID: "memory.compaction", Group: Memory, Title: "memory is not compacted in advance",
		Reads: "/proc/sys/vm/compaction_proactiveness", Wants: "0",
		Why:    "A kernel thread on each node moves pages while programs run; pools of huge pages make it needless.",
		Source: "kernel documentation: admin-guide/sysctl/vm (compaction_proactiveness: \"non-trivial system-wide impact\")",
		Costs:  "jitter: pages of running programs are moved",
		Fix:    "sysctl -w vm.compaction_proactiveness=0",
		Needs:  Nothing, Profiles: onVMHosts,
		look:   wants("/proc/sys/vm/compaction_proactiveness", Warn, "0"),
		writes: writes("/proc/sys/vm/compaction_proactiveness", "0"),
	},
	{
		ID: "memory.balance", Group: Memory, Title: "nodes have equal memory",
		Reads: "/sys/devices/system/node/node*/meminfo", Wants: "nodes with CPUs differ by less than a tenth",
		Why:    "A missing or dead memory module leaves a node with less memory and fewer channels.",
		Source: "VMware vNUMA paper (nodes of equal size); vendors' memory population rules",
		Costs:  "memory bandwidth of the node, and room for VMs on it",
		Fix:    "look for the module: dmidecode -t memory, ipmitool sel list",
		Needs:  Other, Profiles: onHosts,
		look: func(f *facts) finding {
			h := f.host()
			if h == nil {
				return found(Unknown, "%v", f.topoErr)
			}
			var least, most uint64
			n := 0
			for _, node := range h.Nodes {
				if len(node.CPUs) == 0 {
					continue
				}
				if n++; n == 1 {
					least = node.MemoryBytes
				}
				least, most = min(least, node.MemoryBytes), max(most, node.MemoryBytes)
			}
			if n < 2 {
				return found(NotApplicable, "one node")
			}
			if most-least > most/10 {
				return found(Warn, "%s to %s", words.Bytes(least), words.Bytes(most))
			}
			return found(OK, "%s each", words.Bytes(most))
		},
	},
}

// hugePageWrites makes a pool of 2 MiB pages on each node with memory and without free huge pages:
// Options.HugePageBytes, or half of the node's available memory.
func hugePageWrites(f *facts) []Write {
	h := f.host()
	if h == nil {
		return nil
	}
	const page = 2 << 20
	var list []Write
	for _, n := range h.Nodes {
		free := 0
		for _, p := range n.Pools {
			free += p.Free
		}
		want := f.huge
		if want == 0 {
			want = n.AvailableBytes / 2
		}
		file := fmt.Sprintf("%snode%d/hugepages/hugepages-2048kB/nr_hugepages", nodeDir, n.ID)
		has, ok := f.number(file)
		if n.MemoryBytes == 0 || n.GPU != "" || free > 0 || !ok || want < page {
			continue
		}
		list = append(list, Write{File: file, Value: strconv.FormatInt(has+int64(want/page), 10)})
	}
	return list
}
