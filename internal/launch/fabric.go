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

// rxmBuffer is FI_OFI_RXM_BUFFER_SIZE in bytes, the limit up to which ofi_rxm sends a message at once: a message of
// 16 KiB plus the provider's header. With the default, 16 KiB, such a message is sent as two (docs/hosts.md has the
// cost).
const rxmBuffer = "16640"

// distributionProviders are the directories in which distributions keep libfabric's loadable providers, used for VMs
// that the region cannot reach.
var distributionProviders = []string{"/usr/lib/x86_64-linux-gnu/libfabric", "/usr/lib64/libfabric"}

// fabric returns the variables that make every MPI library on libfabric use the provider. A library uses the provider
// if it can be loaded, otherwise the same provider as before; libraries without libfabric are not affected.
//
// theirs is the existing FI_PROVIDER_PATH. It is kept, because libfabric searches no other path. If an earlier Env
// made it (ours), it may lack the directories of the library that is started now.
func fabric(s Setup, theirs string, ours bool) []variable {
	if s.Fabric == "" {
		return nil
	}
	// libfabric 2 accepts + and a file; 1.17 treats that as a directory that does not exist. The library's own
	// directories, or the user's, come first: after nearmetal's, Intel MPI's libfabric 2.4 loads only psm3 from them.
	mine := []string{"+" + s.Fabric, filepath.Dir(s.Fabric)}
	var path []string
	switch more := strings.Split(theirs, ":"); {
	case theirs == "":
		path = slices.Concat(s.Providers, mine, distributionProviders)
	case ours && slices.Contains(more, distributionProviders[0]): // the user had set none
		path = slices.Concat(s.Providers, mine, more)
	default:
		path = slices.Concat(more, mine)
	}
	path = unique(path)
	// libfabric uses the first provider that fits, and unknown ones come last, so only a filter selects the provider.
	choice := []variable{{"FI_PROVIDER", Provider, false}, {"FI_IVSHMEM_CORE", "none", false}}
	if s.OtherHosts {
		core := "auto"
		if len(s.rdma()) > 0 {
			core = "verbs;ofi_rxm"
		}
		// libfabric 1.17 searches the filter also for the parts of the provider that reaches other hosts; without the
		// include list Open MPI would use the first of them.
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
		// Debian's Open MPI 4.1 turns mtl ofi off (mtl = ^ofi); excluding a component that nobody has turns it on
		// without requiring it. The priority lifts pml cm above ob1 and ucx.
		{"OMPI_MCA_mtl", "^psm", false},
		{"OMPI_MCA_mtl_ofi_priority", "100", false},
		// osc ucx would use a network of its own next to the provider's. Open MPI 4.1.4's returns from MPI_Win_fence
		// before all puts have arrived, and 5.0.7's may fail to create a window.
		{"OMPI_MCA_osc", "^ucx", false},
		{"MPIR_CVAR_CH4_NETMOD", netmod, false},
		{"I_MPI_FABRICS", "ofi", false}, // not shm:ofi, which is slower within a VM
		{"I_MPI_OFI_PROVIDER", Provider, false},
	}...)
}

// FabricEnv returns, as NAME=VALUE, the variables with which the MPI libraries of programs on one host use the
// provider in file. Benchmarks of the provider use it.
func FabricEnv(file string) []string {
	var env []string
	for _, v := range fabric(Setup{Fabric: file}, "", false) {
		env = append(env, v.name+"="+v.value)
	}
	return env
}

// unique returns the distinct words of list, without empty ones.
func unique(list []string) []string {
	var out []string
	for _, w := range list {
		if w != "" && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// usersPath returns the FI_PROVIDER_PATH in environ, the last one if several are set.
func usersPath(environ []string) string {
	value := ""
	for _, v := range environ {
		if p, ok := strings.CutPrefix(v, "FI_PROVIDER_PATH="); ok {
			value = p
		}
	}
	return value
}

// ProviderFolders returns the directories with the providers of the MPI library's own libfabric. program is the
// absolute path of the library's mpirun.
func ProviderFolders(program string) []string {
	if to, err := filepath.EvalSymlinks(program); err == nil {
		program = to
	}
	prefix := filepath.Dir(filepath.Dir(program))
	if prefix == "/" || prefix == "/usr" {
		return nil // the distribution's library
	}
	var folders []string
	for _, pattern := range []string{"lib/libfabric", "lib/*/libfabric", "lib64/libfabric", "opt/mpi/libfabric/lib/prov", "libfabric/lib/prov",
		"lib/libtcp-fi.so"} { // the last pattern: Intel MPI as a wheel
		found, err := filepath.Glob(filepath.Join(prefix, pattern))
		if err != nil {
			continue // the prefix contains characters of a pattern
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
