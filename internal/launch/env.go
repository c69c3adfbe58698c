package launch

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// Side states where a launcher runs.
type Side int

const (
	// OnHost: outside the VMs, on their host. The launcher's agent connects to the cluster's owner; its daemons in
	// the VMs call back over the uplink.
	OnHost Side = iota
	// InVM: in the first VM. All traffic uses the VMs' network.
	InVM
)

// Setup describes a cluster to a launcher.
type Setup struct {
	Side         Side
	Cluster      string       // name; the agent on the host reads it from NEARMETAL_CLUSTER
	Agent        string       // absolute path of the remote shell, see Link
	OpenMPIHosts string       // absolute path of a host file: names, format openmpi
	MPICHHosts   string       // absolute path of a host file, format mpich: with addresses if the launcher runs on the host, see AddressHostfile
	Subnet       netip.Prefix // of the VMs' network
	Interface    string       // interface of the VMs' network in every VM: "eth0"
	Root         bool         // ranks run as uid 0
	Fabric       string       // absolute path of the libfabric provider in the VMs; "": not used
	UCX          bool         // programs in the VMs have the transport for UCX preloaded
	PreferUCX    bool         // libraries that have both libfabric and UCX use UCX
	userUCX      bool         // the user has chosen Open MPI's pml ucx; set by Env
	Providers    []string     // directories of other libfabric providers, see ProviderFolders
	Devices      []Device     // the VMs' devices to those on other hosts; none: they use their network
	Ranks        int          // number of ranks for which the VMs have vCPUs
	// RegionRanks is the number of ranks for which the region of a host's VMs has room; 0: the first rank in it decides.
	RegionRanks int
	// Overcommitted: VMs wait for each other's CPUs, and ranks that wait must sleep for others to run.
	Overcommitted bool
	OtherHosts    bool // the job has VMs on other hosts, which the provider's region does not reach
}

// marker names the variables that nearmetal set, so that a cluster started from within the environment of another
// does not treat the other's values as the user's own.
const marker = "NEARMETAL_LAUNCH"

// variable is a variable of a launcher's environment. A forced one states where the VMs are and how to reach them.
// With another value ranks would silently run elsewhere, so it overrides the user's value (a batch system's module
// may have set it). For the others the user's own value has priority.
type variable struct {
	name, value string
	forced      bool
}

// oldNames are the names that variables of the provider had until 0.2.0: a user who sets one has chosen.
var oldNames = map[string]string{"FI_IVSHMEM_INNER": "FI_IVSHMEM_CORE", "FI_IVSHMEM_NAP": "FI_IVSHMEM_WAIT_TIMEOUT"}

// Env returns the variables (NAME=value, ordered by name) that make any known launcher start its ranks in the VMs.
// environ is the launcher's environment without them: variables of choice that are set there are omitted. It fails if
// a path or the interface has a character at which a launcher would split it.
//
// The variables of all libraries are set at once: when a shell is opened it is not known which mpirun will be used,
// and no library minds another's variables.
func Env(s Setup, environ []string) ([]string, error) {
	paths := []string{s.Agent, s.OpenMPIHosts, s.MPICHHosts}
	if s.Fabric != "" {
		paths = append(paths, s.Fabric)
	}
	for _, p := range paths {
		if err := CheckPath(p); err != nil {
			return nil, err
		}
	}
	s.userUCX = namesUCX(environ)
	if !interfaceName().MatchString(s.Interface) {
		return nil, fmt.Errorf("launch: %q is not the name of an interface", s.Interface)
	}
	vars := hydra(s)
	vars = append(vars, openmpi4(s)...)
	vars = append(vars, prrte(s)...)
	vars = append(vars, ways(s)...)
	vars = append(vars, fabric(s, usersPath(environ), slices.Contains(Ours(environ), "FI_PROVIDER_PATH"))...)
	if s.Side == OnHost {
		vars = append(vars, variable{"NEARMETAL_CLUSTER", s.Cluster, true})
	}

	users := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		users[name] = value
	}
	names, sums := marked(users[marker])
	for _, name := range names {
		if s := sums[name]; s == "" || s == sum(users[name]) {
			delete(users, name)
		}
	}
	for old, name := range oldNames {
		if value, theirs := users[old]; theirs {
			users[name] = value
		}
	}

	var out, set []string
	for _, v := range vars {
		if _, theirs := users[v.name]; v.forced || !theirs {
			out = append(out, v.name+"="+v.value)
			set = append(set, mark(v.name, v.value))
		}
	}
	sort.Strings(set)
	out = append(out, marker+"="+strings.Join(set, ":"))
	sort.Strings(out)
	return out, nil
}

var interfaceName = lazyregexp.New(`^[A-Za-z0-9_.-]{1,15}$`)

// hydra is the launcher of MPICH (all versions), MVAPICH and Intel MPI.
func hydra(s Setup) []variable {
	return []variable{
		// With "ssh" hydra calls the agent as `AGENT -x HOST "PROXY" …`.
		{"HYDRA_LAUNCHER", "ssh", true},
		{"HYDRA_LAUNCHER_EXEC", s.Agent, true},
		{"HYDRA_HOST_FILE", s.MPICHHosts, true},
		// "user" keeps hydra from querying a batch system for hosts.
		{"HYDRA_RMK", "user", true},
		{"I_MPI_HYDRA_BOOTSTRAP", "ssh", true},
		{"I_MPI_HYDRA_BOOTSTRAP_EXEC", s.Agent, true},
		{"I_MPI_HYDRA_HOST_FILE", s.MPICHHosts, true},
		{"I_MPI_HYDRA_RMK", "user", true},
		{"I_MPI_HYDRA_BRANCH_COUNT", treeWidth, true},
	}
}

// batchSystems are the resource managers that Open MPI would query for hosts when it is started in one of their jobs.
const batchSystems = "^slurm,tm,lsf,gridengine,loadleveler,alps"

// openmpi4 is Open MPI 4's launcher (ORTE).
//
// plm_rsh_no_tree_spawn is not used: with it the daemons detach from the remote shell and would outlive it. A wide
// routing tree has the same effect without that: every daemon is started by the launcher and connects only to it,
// never to another daemon over the wrong interface.
func openmpi4(s Setup) []variable {
	vars := []variable{
		{"OMPI_MCA_plm", "rsh", true},
		{"OMPI_MCA_plm_rsh_agent", s.Agent, true},
		{"OMPI_MCA_orte_default_hostfile", s.OpenMPIHosts, true},
		{"OMPI_MCA_ras", batchSystems, true},
		{"OMPI_MCA_routed_radix", treeWidth, true},
		// More ranks than vCPUs are allowed.
		{"OMPI_MCA_rmaps_base_oversubscribe", "1", false},
	}
	if s.Side == OnHost {
		// The VMs' names are not known here: a query to a name server that does not answer lasts half a minute.
		vars = append(vars, variable{"OMPI_MCA_if_base_do_not_resolve", "1", true})
	} else {
		vars = append(vars, variable{"OMPI_MCA_oob_tcp_if_include", s.Subnet.Masked().String(), false})
	}
	if s.Root {
		vars = append(vars, variable{"OMPI_ALLOW_RUN_AS_ROOT", "1", false}, variable{"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", false})
	}
	return vars
}

// treeWidth is larger than the number of VMs of any cluster.
const treeWidth = "4096"

// prrte is Open MPI 5's launcher. Its list is written out like that of Open MPI 4, because every name differs, so that each can be
// compared with the library's documentation.
func prrte(s Setup) []variable {
	vars := []variable{
		{"PRTE_MCA_plm", "ssh", true},
		{"PRTE_MCA_plm_ssh_agent", s.Agent, true},
		{"PRTE_MCA_prte_default_hostfile", s.OpenMPIHosts, true},
		{"PRTE_MCA_ras", batchSystems, true},
		{"PRTE_MCA_rml_base_radix", treeWidth, true},
		// With ":oversubscribe" only, all ranks would be placed in the first VM.
		{"PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe", false},
	}
	if s.Side == OnHost {
		vars = append(vars, variable{"PRTE_MCA_prte_do_not_resolve", "1", true})
	} else {
		vars = append(vars, variable{"PRTE_MCA_prte_if_include", s.Subnet.Masked().String(), false})
	}
	if s.Root {
		vars = append(vars, variable{"PRTE_ALLOW_RUN_AS_ROOT", "1", false}, variable{"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1", false})
	}
	return vars
}

// pathCharacters matches paths that no launcher splits: Open MPI splits its agent at blanks and colons, and hydra
// passes it to a shell unquoted.
var pathCharacters = lazyregexp.New(`^/[A-Za-z0-9_./+@%=,-]*$`)

// CheckPath returns an error if launchers cannot use path, which must be absolute.
func CheckPath(path string) error {
	if !pathCharacters().MatchString(path) {
		return fmt.Errorf("the path %q has a character that MPI launchers break it at; set NEARMETAL_RUNTIME_DIR to a directory with letters, digits and ._+-/ only", path)
	}
	return nil
}

// AgentName is the program name under which nearmetal acts as a remote shell.
const AgentName = "nearmetal-rsh"

// Link creates the remote shell's name for the program exe in directory dir, and returns its path. Launchers accept
// only one word without blanks, and exe may contain some.
func Link(dir, exe string) (string, error) {
	path := filepath.Join(dir, AgentName)
	if err := CheckPath(path); err != nil {
		return "", err
	}
	if to, err := os.Readlink(path); err == nil && to == exe {
		return path, nil
	}
	// The link is made under another name and renamed, so that a launcher that is starting finds either the old or
	// the new one.
	aside := path + "." + strconv.Itoa(os.Getpid())
	if err := os.Symlink(exe, aside); err != nil {
		return "", fmt.Errorf("launch: %w", err)
	}
	if err := os.Rename(aside, path); err != nil {
		os.Remove(aside)
		return "", fmt.Errorf("launch: %w", err)
	}
	return path, nil
}

// inAgentOnly are variables that a launcher sets for itself and that its agent inherits: in a VM they would be
// treated as the user's.
var inAgentOnly = []string{
	"PMI_", "PMIX_", "HYDI_", "OMPI_COMM_WORLD_", "OMPI_TOOL_NAME", "OMPI_VERSION", "OMPI_LIBDIR_LOC", "OMPI_MCA_PREFIXES",
	"HFI_NO_BACKTRACE", "IPATH_NO_BACKTRACE",
}

// AgentEnv returns the part of a remote shell's environment that is passed to its command in a VM. sshd would provide
// a fresh login's environment; nearmetal passes the launcher's own, without the variables that the launcher keeps
// there for itself. Modules and variables of the shell that started the launcher therefore apply in the VMs.
func AgentEnv(environ []string) []string {
	var out []string
next:
	for _, v := range environ {
		for _, p := range inAgentOnly {
			if strings.HasPrefix(v, p) {
				continue next
			}
		}
		out = append(out, v)
	}
	return out
}
