// Package mpi describes the MPI libraries of benchmarks: their launchers, the placement of ranks, and which of
// nearmetal's kernels are built for them.
package mpi

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/launch"
	"nearmetal/internal/spec"
)

// Flavour is one MPI library with one channel for its messages.
type Flavour struct {
	Name     string // "openmpi", "mpich", "ivshmem", "mpich-ivshmem", or a launcher's path
	Launcher launch.Launcher
	Word     string   // the launcher as it is called: a path
	Env      []string // variables that choose the channel
}

// Names are the flavours that can be requested by name.
var Names = []string{"openmpi", "mpich", "ivshmem", "mpich-ivshmem"}

// launchers are the launchers by which a flavour is searched in PATH, with its library. The plain names come first:
// of several libraries of a kind that is the one which a user's PATH or module selected.
var launchers = map[string]struct {
	library launch.Library
	words   []string
}{
	"openmpi": {launch.OpenMPI, []string{"mpirun", "mpiexec", "mpirun.openmpi", "prterun"}},
	"mpich":   {launch.MPICH, []string{"mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"}},
}

// Find returns a flavour by its name, or by the path of a launcher, followed by +ivshmem for one over nearmetal's
// provider. provider is the directory of nearmetal's libfabric provider, "" if there is none. programs is the
// directory into which bench install installs programs: an MPI from PyPI is found there, after those in PATH.
func Find(ctx context.Context, name, provider, programs string) (Flavour, error) {
	f := Flavour{Name: name}
	if strings.Contains(name, "/") {
		path, over := strings.CutSuffix(name, "+ivshmem")
		l, ok, err := launch.Detect(ctx, []string{path}, exec.LookPath)
		if err == nil && !ok {
			err = fmt.Errorf("%s is not a known MPI launcher", path)
		}
		if err != nil {
			return f, err
		}
		f.Launcher, f.Word, f.Name = l, path, strings.ToLower(strings.ReplaceAll(string(l.Library), " ", ""))
		if over {
			f.Name += "-ivshmem"
		}
		return f, f.channel(provider)
	}
	base := name
	switch name {
	case "ivshmem":
		base = "openmpi"
	case "mpich-ivshmem":
		base = "mpich"
	}
	known, ok := launchers[base]
	if !ok {
		if near := spec.Nearest(name, Names); near != "" {
			return f, fmt.Errorf("there is no MPI called %q: did you mean %s?", name, near)
		}
		return f, fmt.Errorf("there is no MPI called %q: use %s, or the path of a launcher", name, strings.Join(Names, ", "))
	}
	words := slices.Clone(known.words)
	for _, word := range known.words {
		if programs != "" {
			words = append(words, filepath.Join(programs, "venv/bin", word))
		}
	}
	for _, word := range words {
		l, ok, err := launch.Detect(ctx, []string{word}, exec.LookPath)
		if err != nil || !ok || l.Library != known.library {
			continue
		}
		if f.Word, err = exec.LookPath(word); err != nil {
			continue
		}
		f.Launcher = l
		return f, f.channel(provider)
	}
	return f, fmt.Errorf("no launcher of %s is found in PATH: install it (Debian: apt-get install %s)", known.library,
		map[string]string{"openmpi": "openmpi-bin", "mpich": "mpich"}[base])
}

// channel sets the variables that send messages over nearmetal's provider (docs/environment.md).
func (f *Flavour) channel(provider string) error {
	if !strings.HasSuffix(f.Name, "ivshmem") {
		return nil
	}
	if provider == "" {
		return fmt.Errorf("--mpi %s: nearmetal's libfabric provider (libivshmem-fi.so) is not found: install libfabric-dev and run make", f.Name)
	}
	f.Env = []string{"FI_PROVIDER_PATH=" + provider}
	switch f.Launcher.Library {
	case launch.OpenMPI:
		include := "OMPI_MCA_mtl_ofi_provider_include"
		if f.Launcher.Major() >= 5 {
			include = "OMPI_MCA_opal_common_ofi_provider_include"
		}
		// Requested by name: an Open MPI without it then fails instead of using another channel.
		f.Env = append(f.Env, "OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi", include+"=ivshmem")
		if f.Launcher.Major() < 5 { // otherwise windows would use Open MPI's own shared memory
			f.Env = append(f.Env, "OMPI_MCA_osc=pt2pt")
		}
	default:
		f.Env = append(f.Env, "FI_PROVIDER=ivshmem", "MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1")
	}
	return nil
}

// InVMs returns the additional variables that ranks in VMs need: Open MPI 4's one-sided communication over RDMA finds
// no window between VMs ("invalid window"); the one over messages does.
func (f *Flavour) InVMs() []string {
	if f.Launcher.Library == launch.OpenMPI && f.Launcher.Major() < 5 {
		return []string{"OMPI_MCA_osc=pt2pt"}
	}
	return nil
}

// Launch states how ranks are started.
type Launch struct {
	Ranks, Threads int   // threads per rank
	Slots          int   // number of cores for all ranks
	Spread         bool  // neighbouring ranks on different VMs or hosts
	CPUs           []int // CPUs of this host that ranks may use; none: all
	Export         []string
}

// Words returns the launcher's words, to be followed by the program's.
func (f Flavour) Words(l Launch) []string {
	w := []string{f.Word, "-n", strconv.Itoa(l.Ranks)}
	crowded := l.Ranks*max(1, l.Threads) > l.Slots
	if f.Launcher.Library != launch.OpenMPI {
		if l.Spread {
			w = append(w, "-ppn", "1")
		}
		if !crowded && l.Threads <= 1 && !l.Spread {
			w = append(w, "-bind-to", "core")
		}
		return w
	}
	switch {
	case l.Spread:
		w = append(w, "--map-by", "node")
	case l.Threads > 1 && !crowded:
		w = append(w, "--map-by", "slot:PE="+strconv.Itoa(l.Threads))
	}
	if crowded {
		w = append(w, "--oversubscribe", "--bind-to", "none")
	} else {
		w = append(w, "--bind-to", "core")
		if len(l.CPUs) > 0 {
			w = append(w, "--cpu-set", list(l.CPUs))
		}
	}
	for _, name := range l.Export {
		w = append(w, "-x", name)
	}
	return w
}

func list(cpus []int) string {
	var words []string
	for _, c := range cpus {
		words = append(words, strconv.Itoa(c))
	}
	return strings.Join(words, ",")
}

// Kernel returns the path of one of nearmetal's MPI programs that is built for f, in one of dirs.
func (f Flavour) Kernel(name string, dirs []string) (string, error) {
	var others []string
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		library, err := Library(path)
		switch {
		case err != nil:
		case library == "" || library == string(f.Family()):
			return path, nil
		default:
			others = append(others, path+" is built for "+library)
		}
	}
	if others != nil {
		return "", fmt.Errorf("%s for %s is not found (%s): build it with make -C kernels MPICC=…", name, f.Launcher.Library, strings.Join(others, ", "))
	}
	return "", fmt.Errorf("%s is not found in %s: run make", name, strings.Join(dirs, ", "))
}

// Family returns the library whose binary interface f's programs have: Open MPI's or MPICH's.
func (f Flavour) Family() launch.Library {
	if f.Launcher.Library == launch.OpenMPI {
		return launch.OpenMPI
	}
	return launch.MPICH
}

// Library returns the MPI library that a program is linked with: "Open MPI", "MPICH" (whose interface Intel's and
// MVAPICH share), or "" for none. For a script it is that of its Python environment.
func Library(path string) (string, error) {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a program", path)
	}
	f, err := elf.Open(path)
	if err != nil {
		if _, none := os.Stat(filepath.Join(filepath.Dir(path), "../pyvenv.cfg")); none == nil {
			libs, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "../lib/libmpi.so.*"))
			for i := range libs {
				libs[i] = filepath.Base(libs[i])
			}
			return libraryOf(libs), nil
		}
		return "", err
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	return libraryOf(libs), err
}

// libraryOf returns the MPI library among shared libraries.
func libraryOf(libs []string) string {
	for _, lib := range libs {
		switch {
		case strings.HasPrefix(lib, "libmpi.so.12"), strings.HasPrefix(lib, "libmpich.so"):
			return string(launch.MPICH)
		case strings.HasPrefix(lib, "libmpi.so"):
			return string(launch.OpenMPI)
		}
	}
	return ""
}
