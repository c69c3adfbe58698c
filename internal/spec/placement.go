package spec

// Placement is how VMs are put onto the host.
type Placement struct {
	// Strict refuses a cluster whose VMs cannot each have CPUs of their own, and with `isolation: strict` a host without Landlock or cgroups for it, instead of a warning.
	Strict bool `yaml:"strict" json:"strict" default:"false"`
	// Policy: `consolidate` puts VMs on as few NUMA nodes as can be, `spread` on as many, `auto` each VM on as few nodes as can be and different VMs on different nodes.
	Policy string `yaml:"policy" json:"policy" default:"auto" enum:"auto,consolidate,spread"`
	// Hint says what the program is bound by, for `policy: auto`: memory `bandwidth` spreads over nodes, `latency` between its ranks consolidates, `cache` spreads over last-level caches.
	Hint string `yaml:"hint" json:"hint" enum:",bandwidth,latency,cache"`
	// SMT: `isolate` puts each vCPU on a core and leaves the core's other threads idle, `prefer` puts vCPUs on all threads of a core, `require` refuses hosts without SMT, `auto` isolates where there are cores enough and else prefers.
	SMT string `yaml:"smt" json:"smt" default:"auto" enum:"auto,isolate,prefer,require"`
	// Cores is which kinds of cores VMs get on hosts that have several (P-cores and E-cores, big and little): `auto` puts all VMs on one kind, the fastest with room; `any` mixes them.
	Cores string `yaml:"cores" json:"cores" default:"auto" enum:"auto,any"`
	// Pin vCPUs to CPUs: `auto` does where KVM runs them, not where instructions are emulated.
	Pin string `yaml:"pin" json:"pin" default:"auto" enum:"auto,always,never"`
	// Reserve keeps this many cores of each host for the host and QEMU's own threads, in turn from its nodes.
	Reserve int `yaml:"reserve" json:"reserve" default:"0" min:"0" max:"4096"`
	// Pages is the size of the host's pages under the VMs' memory: `auto` takes the largest huge pages that all of the VMs can have, `huge` demands huge pages of any size.
	Pages string `yaml:"pages" json:"pages" default:"auto" enum:"auto,huge,1GiB,512MiB,2MiB,ordinary"`
	// Nodes is the number of NUMA nodes of each VM. 0: one if the VM fits a node of the host, else the fewest equal ones.
	Nodes int `yaml:"nodes" json:"nodes" default:"0" min:"0" max:"128"`
	// HostNodes are the host's NUMA nodes that VMs may be put on, by number. Unset: all.
	HostNodes []int `yaml:"hostNodes" json:"hostNodes" min:"0" max:"1023"`
	// MemoryNodes are host nodes without CPUs (HBM, CXL) of which VMs get `memoryNodeSize`, as NUMA nodes without vCPUs.
	MemoryNodes []int `yaml:"memoryNodes" json:"memoryNodes" min:"0" max:"1023"`
	// MemoryNodeSize is what each VM gets of the memory nodes, beside its memory.
	MemoryNodeSize Size `yaml:"memoryNodeSize" json:"memoryNodeSize"`
	// Hosts that the VMs run on, by names that your ssh knows (see docs/hosts.md). `nearmetal plan` takes descriptions as well: directories with captured sysfs, archives of `nearmetal topology gather` or hwloc-gather-topology, hwloc's XML. Unset: this host.
	Hosts []string `yaml:"hosts" json:"hosts"`
	// HostPolicy over several hosts: `spread` puts about as many VMs on each, `pack` uses as few as can be.
	HostPolicy string `yaml:"hostPolicy" json:"hostPolicy" default:"spread" enum:"pack,spread"`
}
