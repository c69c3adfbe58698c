package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// way is one way for an MPI library to send between two ranks.
type way struct {
	name string
	args []string // of mpirun
	env  []string
}

func openmpiWays(provider string) []way {
	ours := []string{"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "opal_common_ofi_provider_include", "ivshmem"}
	sm := []string{"--mca", "pml", "ob1", "--mca", "btl", "self,sm"}
	ucx := []string{"--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"}
	path := "FI_PROVIDER_PATH=" + provider
	return []way{
		{"ivshmem", ours, []string{path}},
		{"ivshmem-nocma", ours, []string{path, "FI_IVSHMEM_CMA=0"}},
		{"sm", sm, nil},
		{"sm-nocma", append(sm, "--mca", "smsc", "^cma,knem,xpmem"), nil},
		{"ucx", ucx, []string{"UCX_TLS=posix,cma,self"}},
		{"ucx-nocma", ucx, []string{"UCX_TLS=posix,self"}},
	}
}

func mpichWays(provider string) []way {
	ours := []string{"FI_PROVIDER_PATH=" + provider, "FI_PROVIDER=ivshmem", "MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1"}
	return []way{
		{"ivshmem", nil, ours},
		{"ivshmem-nocma", nil, append(ours, "FI_IVSHMEM_CMA=0")},
		{"own", nil, nil},
		{"own-nocma", nil, []string{"MPIR_CVAR_CH4_CMA_ENABLE=0"}},
	}
}

// mpiTable measures through an MPI library of the wheels, with the programs of kernels/
// below bin, which are built there if they are missing.
func mpiTable(mpi, provider, bin string) error {
	root, err := filepath.Abs(filepath.Join(*wheels, mpi))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bin/mpicc")); err != nil {
		return fmt.Errorf("there is no %s (%v): run make wheels", mpi, err)
	}
	dir := filepath.Join(bin, mpi)
	make := exec.Command("make", "-s", "-C", "kernels", "mpi", "MPICC="+filepath.Join(root, "bin/mpicc"), "BUILD="+dir)
	make.Stdout, make.Stderr = os.Stderr, os.Stderr
	if err := make.Run(); err != nil {
		return fmt.Errorf("building kernels/ for %s: %w", mpi, err)
	}
	ways := openmpiWays(provider)
	common := []string{"-n", "2", "--bind-to", "core"}
	if mpi == "mpich" {
		ways, common = mpichWays(provider), []string{"-n", "2", "-bind-to", "core"}
	}
	// At real-time priority where that is allowed, within a limit: a spinning rank
	// would starve the machine.
	if exec.Command("chrt", "-f", "1", "true").Run() == nil {
		common = append(common, "\x00", "prlimit", "--rttime=60000000", "chrt", "-f", "1")
	}
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}
	t := newTable(names...)
	programs := []struct {
		what, name string
		args       []string
		column     int
	}{
		{"latency", "nm_latency", []string{"--sizes", "8:1MiB", "--iterations", "3000:200"}, 4},
		{"bandwidth", "nm_bw", []string{"--sizes", "4KiB:8MiB"}, 4},
	}
	for i := 0; i < *runs; i++ {
		for _, w := range ways {
			for _, p := range programs {
				var args, wrap []string
				for j, a := range common {
					if a == "\x00" {
						args, wrap = common[:j], common[j+1:]
						break
					}
				}
				if wrap == nil {
					args = common
				}
				line := append(append([]string{}, args...), w.args...)
				line = append(append(line, wrap...), filepath.Join(dir, p.name))
				cmd := exec.Command(filepath.Join(root, "bin/mpiexec"), append(line, p.args...)...)
				cmd.Env = environ(append(w.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
					"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				out, err := cmd.Output()
				if err != nil {
					// A peer that fails once must not cost the others their figures.
					fmt.Fprintf(os.Stderr, "bench-fabric: %s over %s, run %d left out: %v\n%s", p.name, w.name, i+1, err, errs.String())
					continue
				}
				if err := rows(t, w.name, p.what, p.column, out); err != nil {
					return err
				}
			}
		}
	}
	t.print(mpi)
	return nil
}

// rows reads a program's table: bytes, then columns of figures.
func rows(t *table, name, what string, column int, out []byte) error {
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) == 0 || f[0] == "#" || strings.HasPrefix(f[0], "#") {
			continue
		}
		size, err := strconv.Atoi(f[0])
		if err != nil || len(f) <= column {
			return fmt.Errorf("%s printed %q", name, s.Text())
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err != nil {
			return fmt.Errorf("%s printed %q", name, s.Text())
		}
		if what == "bandwidth" {
			v /= 1e3 // the program gives MB/s
		}
		t.add(name, key{what, size}, v)
	}
	return nil
}
