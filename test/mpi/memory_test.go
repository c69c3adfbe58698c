package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inRegion is what testdata/memory.c says where all is well.
const inRegion = `memory in the region: yes
a window over it works: yes
memory is given out again: yes
a window in the region: yes
its flavor is allocated: yes
it works: yes
its handle is null: yes
a window in the region where one has no room: no
its flavor is allocated: yes
it works: yes
a window in the region when there is room again: yes
memory in the region: yes
what was not freed is as it was: yes
`

// preload is the library that makes MPI_Alloc_mem and MPI_Win_allocate give memory of the
// region.
func preload(t *testing.T) string {
	t.Helper()
	p := filepath.Join(root(t), "build", "c", "fabric", "mpi", "libivshmem-mpi.so")
	if _, err := os.Stat(p); err != nil {
		t.Fatal("run make first: ", err)
	}
	return "LD_PRELOAD=" + p
}

// memoryProgram builds testdata/memory.c with a library's compiler.
func memoryProgram(t *testing.T, l *library) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "memory")
	if out, err := exec.Command(l.mpicc, "-o", program, "testdata/memory.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", l.mpicc, err, out)
	}
	return program
}

// What an MPI hands out lies in the region with the library preloaded, windows over it
// work, and it is the program's until it is freed.
func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		program := memoryProgram(t, l)
		region := filepath.Join("/dev/shm", "nm-mpi-memory-"+l.name)
		defer os.Remove(region)
		env := append([]string{"FI_PROVIDER=ivshmem", "FI_IVSHMEM_REGION=" + region, "FI_IVSHMEM_REGION_SIZE=67108864",
			"FI_IVSHMEM_RANKS=16", preload(t)}, l.onesided...)
		out, _ := l.start(t, 3, env, program, region, "65536")
		if out != inRegion {
			t.Errorf("%s", out)
		}
		if _, err := os.Stat(region); err == nil {
			t.Errorf("%s is still there", region)
		}
	})
}

// Programs in Fortran get it, too: their bindings call the MPI's second names in C.
func TestMemoryFortran(t *testing.T) {
	l := libraries(t)[0] // the only one here that has bindings and runs over libfabric
	const mpif90 = "mpif90.openmpi"
	for _, p := range []string{l.mpirun, mpif90} {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, p)
		}
	}
	program := filepath.Join(t.TempDir(), "memory")
	if out, err := exec.Command(mpif90, "-o", program, "testdata/memory.f90").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", mpif90, err, out)
	}
	region := "/dev/shm/nm-mpi-memory-fortran"
	defer os.Remove(region)
	env := append([]string{"FI_PROVIDER=ivshmem", "FI_IVSHMEM_REGION=" + region, "FI_IVSHMEM_REGION_SIZE=67108864",
		"FI_IVSHMEM_RANKS=16"}, l.onesided...)
	for _, preloaded := range []string{preload(t), "LD_PRELOAD="} {
		in := "yes"
		if preloaded == "LD_PRELOAD=" {
			in = "no"
		}
		out, _ := l.start(t, 3, append([]string{preloaded}, env...), program, region)
		if want := "memory in the region: " + in + "\nit is freed: yes\na window in the region: " + in +
			"\nit works: yes\nit begins there: yes\nit is freed: yes\n"; out != want {
			t.Errorf("%s\n%s", preloaded, out)
		}
	}
}

// Without the provider the MPI's own memory is as it was.
func TestMemoryWithoutProvider(t *testing.T) {
	l := libraries(t)[1]
	if _, err := exec.LookPath(l.mpirun); err != nil {
		missing(t, l.mpirun)
	}
	out, _ := l.start(t, 2, []string{"FI_PROVIDER_PATH=" + t.TempDir(), "OMPI_MCA_pml=ob1", preload(t)},
		memoryProgram(t, l), "/dev/shm/none", "65536")
	if strings.Contains(out, "region: yes") || strings.Count(out, ": yes") != 7 {
		t.Errorf("%s", out)
	}
}

// One-sided communication leaves what it must in windows out of the region, too (the
// program compares).
func TestOneSidedInRegion(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		out, u := l.run(t, 3, append([]string{preload(t), "FI_IVSHMEM_RANKS=16"}, l.onesided...), bin+"/nm_onesided", "--bytes", "40000", "--rounds", "10")
		if n := strings.Count(out, " ok\n"); n != 14 {
			t.Errorf("%d of 14 checks: %s", n, out)
		}
		u.all(t, 3)
	})
}
