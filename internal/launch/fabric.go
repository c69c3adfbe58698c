package launch

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Provider is the name of nearmetal's libfabric provider.
const Provider = "ivshmem"

// distributionProviders are the folders in which distributions keep libfabric's loadable
// providers, for what the region cannot reach.
var distributionProviders = []string{"/usr/lib/x86_64-linux-gnu/libfabric", "/usr/lib64/libfabric"}

// fabric makes every MPI library on libfabric use the provider, and leaves those alone that
// are not: each library takes it where it can be loaded, and what it took before where not.
//
// theirs is the user's own FI_PROVIDER_PATH: libfabric looks nowhere else, so it is kept
// behind ours.
func fabric(s Setup, theirs string) []variable {
	if s.Fabric == "" {
		return nil
	}
	// libfabric 2 takes + and a file; 1.17 takes that for a folder which is not there.
	path := []string{"+" + s.Fabric, filepath.Dir(s.Fabric)}
	for _, p := range strings.Split(theirs, ":") {
		if p != "" && p != path[0] && p != path[1] {
			path = append(path, p)
		}
	}
	if theirs == "" {
		path = append(path, s.Providers...)
		path = append(path, distributionProviders...)
	}
	// The first one that fits is taken, and unknown ones come last: only a filter helps.
	choice := []variable{{"FI_PROVIDER", Provider, false}, {"FI_IVSHMEM_INNER", "none", false}}
	if s.OtherHosts {
		// libfabric 1.17 looks for the parts of what reaches them behind the filter. Open MPI 4.1 on it
		// once waited for ever for ranks of other hosts (seen in one of three runs): its own TCP has not.
		choice = []variable{{"FI_PROVIDER", Provider + ",verbs,tcp,ofi_rxm", false}, {"FI_IVSHMEM_INNER", "auto", false},
			{"OMPI_MCA_pml", "^cm", false}}
	}
	return append(choice, []variable{
		{"FI_PROVIDER_PATH", strings.Join(path, ":"), true},
		// Debian's Open MPI 4.1 turns mtl ofi off (mtl = ^ofi); excluding what nobody has turns
		// it on without demanding it. The priority lifts pml cm above ob1 and ucx.
		{"OMPI_MCA_mtl", "^psm", false},
		{"OMPI_MCA_mtl_ofi_priority", "100", false},
		{"MPIR_CVAR_CH4_NETMOD", "ofi", false},
		{"I_MPI_FABRICS", "ofi", false}, // not shm:ofi, which is slower within a VM
	}...)
}

// FabricEnv gives, as NAME=VALUE, what the programs of a cluster on one host get so that their MPI
// libraries take the provider in file: for measuring what that costs.
func FabricEnv(file string) []string {
	var env []string
	for _, v := range fabric(Setup{Fabric: file}, "") {
		env = append(env, v.name+"="+v.value)
	}
	return env
}

// usersPath gives the FI_PROVIDER_PATH in environ, of several the last, "" where it is what
// an earlier Env has put there.
func usersPath(environ []string) string {
	value := ""
	for _, v := range environ {
		if p, ok := strings.CutPrefix(v, "FI_PROVIDER_PATH="); ok {
			value = p
		}
	}
	return value
}

// ProviderFolders gives the folders in which an MPI library keeps the providers of its own
// libfabric, for the library that program (an absolute path of its mpirun) belongs to.
func ProviderFolders(program string) []string {
	if to, err := filepath.EvalSymlinks(program); err == nil {
		program = to
	}
	prefix := filepath.Dir(filepath.Dir(program))
	if prefix == "/" || prefix == "/usr" {
		return nil // the distribution's
	}
	var folders []string
	for _, pattern := range []string{"lib/libfabric", "lib/*/libfabric", "lib64/libfabric", "opt/mpi/libfabric/lib/prov"} {
		found, err := filepath.Glob(filepath.Join(prefix, pattern))
		if err != nil {
			continue // a prefix with the characters of a pattern
		}
		for _, f := range found {
			if fi, err := os.Stat(f); err == nil && fi.IsDir() && CheckPath(f) == nil {
				folders = append(folders, f)
			}
		}
	}
	sort.Strings(folders)
	return folders
}
