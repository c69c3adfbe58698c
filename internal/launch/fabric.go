package launch

import (
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Provider is the name of nearmetal's libfabric provider.
const Provider = "ivshmem"

// rxmBuffer is FI_OFI_RXM_BUFFER_SIZE in bytes, up to which ofi_rxm sends a message at once: a message of 16 KiB and the
// provider's header. With the default, 16 KiB, such a message goes as two (docs/hosts.md has what that takes).
const rxmBuffer = "16640"

// distributionProviders are the folders in which distributions keep libfabric's loadable
// providers, for what the region cannot reach.
var distributionProviders = []string{"/usr/lib/x86_64-linux-gnu/libfabric", "/usr/lib64/libfabric"}

// fabric makes every MPI library on libfabric use the provider, and leaves those alone that
// are not: each library takes it where it can be loaded, and what it took before where not.
//
// theirs is the FI_PROVIDER_PATH that there is: libfabric looks nowhere else, so it is kept. Where an earlier Env made
// it (ours), it may lack the folders of the library that is started now.
func fabric(s Setup, theirs string, ours bool) []variable {
	if s.Fabric == "" {
		return nil
	}
	// libfabric 2 takes + and a file; 1.17 takes that for a folder which is not there. The library's own folders, or
	// the user's, stand first: behind ours, Intel MPI's libfabric 2.4 loads psm3 alone of them.
	mine := []string{"+" + s.Fabric, filepath.Dir(s.Fabric)}
	var path []string
	switch more := strings.Split(theirs, ":"); {
	case theirs == "":
		path = slices.Concat(s.Providers, mine, distributionProviders)
	case ours && slices.Contains(more, distributionProviders[0]): // there was none of the user's
		path = slices.Concat(s.Providers, mine, more)
	default:
		path = slices.Concat(more, mine)
	}
	path = unique(path)
	// The first one that fits is taken, and unknown ones come last: only a filter helps.
	choice := []variable{{"FI_PROVIDER", Provider, false}, {"FI_IVSHMEM_CORE", "none", false}}
	if s.OtherHosts {
		core := "auto"
		if len(s.rdma()) > 0 {
			core = "verbs;ofi_rxm"
		}
		// libfabric 1.17 looks for the parts of what reaches them behind the filter; Open MPI would take the first
		// of them.
		choice = []variable{{"FI_PROVIDER", Provider + ",verbs,tcp,ofi_rxm", false}, {"FI_IVSHMEM_CORE", core, false},
			{"OMPI_MCA_opal_common_ofi_provider_include", Provider, false}, {"FI_OFI_RXM_BUFFER_SIZE", rxmBuffer, false}}
	}
	if s.RegionRanks > 0 {
		choice = append(choice, variable{"FI_IVSHMEM_RANKS", strconv.Itoa(s.RegionRanks), false})
	}
	if s.Overcommitted {
		choice = append(choice, variable{"FI_IVSHMEM_OVERCOMMIT", "1", false})
	}
	if s.UCX {
		choice = append(choice, ucx(s)...)
	}
	netmod := "ofi"
	if s.UCX && s.PreferUCX {
		netmod = "ucx"
	}
	return append(choice, []variable{
		{"FI_PROVIDER_PATH", strings.Join(path, ":"), true},
		// Debian's Open MPI 4.1 turns mtl ofi off (mtl = ^ofi); excluding what nobody has turns
		// it on without demanding it. The priority lifts pml cm above ob1 and ucx.
		{"OMPI_MCA_mtl", "^psm", false},
		{"OMPI_MCA_mtl_ofi_priority", "100", false},
		// osc ucx would take a network of its own beside the provider; Open MPI 4.1.4's returns from
		// MPI_Win_fence before all puts are there, and 5.0.7's may fail to make a window.
		{"OMPI_MCA_osc", "^ucx", false},
		{"MPIR_CVAR_CH4_NETMOD", netmod, false},
		{"I_MPI_FABRICS", "ofi", false}, // not shm:ofi, which is slower within a VM
		{"I_MPI_OFI_PROVIDER", Provider, false},
	}...)
}

// FabricEnv returns, as NAME=VALUE, what the programs of a cluster on one host get so that their MPI
// libraries take the provider in file: for measuring what that costs.
func FabricEnv(file string) []string {
	var env []string
	for _, v := range fabric(Setup{Fabric: file}, "", false) {
		env = append(env, v.name+"="+v.value)
	}
	return env
}

// unique returns the words of list that are not empty, each once.
func unique(list []string) []string {
	var out []string
	for _, w := range list {
		if w != "" && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// usersPath returns the FI_PROVIDER_PATH in environ, of several the last.
func usersPath(environ []string) string {
	value := ""
	for _, v := range environ {
		if p, ok := strings.CutPrefix(v, "FI_PROVIDER_PATH="); ok {
			value = p
		}
	}
	return value
}

// ProviderFolders returns the folders in which an MPI library keeps the providers of its own
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
	for _, pattern := range []string{"lib/libfabric", "lib/*/libfabric", "lib64/libfabric", "opt/mpi/libfabric/lib/prov", "libfabric/lib/prov",
		"lib/libtcp-fi.so"} { // the last: Intel MPI as a wheel
		found, err := filepath.Glob(filepath.Join(prefix, pattern))
		if err != nil {
			continue // a prefix with the characters of a pattern
		}
		for _, f := range found {
			f = strings.TrimSuffix(f, "/libtcp-fi.so")
			if fi, err := os.Stat(f); err == nil && fi.IsDir() && CheckPath(f) == nil {
				folders = append(folders, f)
			}
		}
	}
	sort.Strings(folders)
	return folders
}
