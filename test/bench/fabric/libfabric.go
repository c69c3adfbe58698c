package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// makers of the tables, by name.
var makers = map[string]func(*bench) (*table, error){
	"message":      message,
	"libfabric":    libfabric,
	"puts":         puts,
	"core":         core,
	"scale":        scale,
	"openmpi":      openmpi,
	"mpich":        mpich,
	"intel":        intel,
	"earlier":      earlier(earlierFabric),
	"earlier-work": earlier(earlierWork),
	"earlier-mpi":  earlier(earlierMPI),
	"traffic":      traffic,
	"tune":         tune,

	"ucp":         ucp,
	"ucp-window":  ucpWindow,
	"ucp-scale":   ucpScale,
	"openmpi-ucx": openmpiUCX,
}

func tableNames() []string {
	return append([]string{"libfabric", "puts", "core", "scale", "openmpi", "mpich", "intel", "earlier", "earlier-work", "earlier-mpi", "message", "traffic", "tune"}, ucxTables...)
}

// fabric is a way at the level of libfabric, with the newest libfabric that is here: the
// one that MPICH's wheel carries, else the system's.
func (b *bench) fabric(name string, args []string, env ...string) *way {
	// A job of its own: what else runs in this session has another region.
	env = append(env, "FI_PROVIDER_PATH="+b.provider, fmt.Sprintf("FI_IVSHMEM_JOB=bench-%d", os.Getpid()))
	lib := filepath.Join(b.wheels, "mpich/lib/mpich")
	if _, err := os.Stat(filepath.Join(lib, "libfabric.so.1")); err == nil {
		env = append(env, "LD_LIBRARY_PATH="+lib)
	}
	return &way{name: name, command: append([]string{filepath.Join(b.tools, "fabric_bench")}, args...), env: env}
}

// pingpong takes a cache line's ping-pong between the two cores, in us.
func (b *bench) pingpong() (float64, error) {
	figures, err := b.fabric("pingpong", []string{"pingpong"}).run()
	return figures[key{"latency", 8}], err
}

// limits returns the columns of what the machine can do at most.
func (b *bench) limits() *way {
	w := b.fabric("2copies", []string{"limits"})
	w.spread = map[string][]string{
		"copy":   {"1copy", "bandwidth"},
		"copies": {"2copies", "bandwidth"},
		"kernel": {"kernel", "bandwidth"},
	}
	return w
}

// limited puts the limits into a table: latency is the cache-line ping-pong.
func (t *table) limited(b *bench) *table {
	t.ways = append([]*way{b.limits()}, t.ways...)
	t.columns = append([]string{"1copy", "2copies", "kernel"}, t.columns...)
	return t
}

const limitsText = " (1copy: by one core; 2copies: by two cores through 1 MiB of memory, latency: a cache line's ping-pong; kernel: one copy by the kernel)"

func libfabric(b *bench) (*table, error) {
	message := func(p string) []string { return []string{"messages", p} }
	return newTable("libfabric"+limitsText,
		b.fabric("ivshmem", message("ivshmem")),
		b.fabric("ivshmem-nocma", message("ivshmem"), "FI_IVSHMEM_CMA=0"),
		b.fabric("shm", message("shm")),
		b.fabric("shm-nocma", message("shm"), "FI_SHM_DISABLE_CMA=1"),
	).limited(b).compare("ivshmem", "shm").compare("ivshmem-nocma", "shm-nocma"), nil
}

// puts compares fi_write to memory in the region with memcpy to it.
func puts(b *bench) (*table, error) {
	return newTable("fi_write to a peer's memory: in the region, elsewhere by CMA, over shm",
		b.fabric("ivshmem", []string{"puts", "ivshmem"}, "FI_IVSHMEM_RANKS=16"),
		b.fabric("ivshmem-cma", []string{"puts", "ivshmem"}, "FI_IVSHMEM_RANKS=1024"),
		b.fabric("shm", []string{"puts", "shm"}),
	).compare("ivshmem", "shm").compare("ivshmem-cma", "shm"), nil
}

// connections are how many core has each run measure.
const connections = 3

// core compares the core provider alone with itself used directly: in turns by the same
// processes and over several connections each, since those differ by up to 1.4 times.
func core(b *bench) (*table, error) {
	w := b.fabric("ivshmem", []string{"beside", "ivshmem", "tcp", fmt.Sprint(connections)}, "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=tcp",
		"FI_IVSHMEM_INNER=tcp") // as earlier providers call it
	w.spread = map[string][]string{}
	for _, u := range units {
		w.spread["other-"+u.what] = []string{"tcp", u.what}
	}
	title := fmt.Sprintf("no region: the core provider tcp, through ours and directly, over %d connections each a run", connections)
	t := newTable(title, w).compare("ivshmem", "tcp")
	t.columns = append(t.columns, "tcp")
	return t, nil
}

// scale measures what many peers and many processes cost.
func scale(b *bench) (*table, error) {
	choice := &way{name: "ivshmem", command: []string{filepath.Join(b.tools, "fabric_choice")}}
	t := newTable("the choice of a channel, 1,022 idle peers, the start of 64 processes (MPI: of Open MPI's ranks; run: with what nearmetal run sets, unset: with nothing)",
		b.fabric("ivshmem", []string{"idle", "ivshmem"}, "FI_IVSHMEM_RANKS=1024"),
		choice,
		b.fabric("ivshmem", []string{"start", "ivshmem", "64"}),
		b.fabric("shm", []string{"start", "shm", "64"}),
	).compare("ivshmem", "shm")
	t.columns = []string{"ivshmem", "shm"}
	m, err := b.openmpi()
	if err != nil {
		return t, nil
	}
	for _, w := range m.starts() {
		t.ways = append(t.ways, w)
		t.columns = append(t.columns, w.name)
	}
	t.compare("mpi-ivshmem", "mpi-shm", "mpi-sm").compare("mpi-run", "mpi-unset")
	return t, nil
}
