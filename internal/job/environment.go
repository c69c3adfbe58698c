// Package job runs commands in clusters: with a cluster of their own (`nearmetal run`), in a running one (exec,
// shell), or by an MPI launcher on the host.
package job

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
)

// onHost reports whether an MPI launcher for the cluster runs on this host.
func onHost(r *state.Record) bool {
	switch r.Spec.Launcher {
	case "host":
		return true
	case "vm":
		return false
	}
	// With auto, the launcher must be the VMs' own MPI, and the VMs must be able to call back. Other hosts have files
	// of their own: only the user knows whether they are the same.
	return r.Spec.Root == "host" && uplink(r) && len(r.Remote) == 0
}

func uplink(r *state.Record) bool { return len(r.VMs) > 0 && r.VMs[0].Uplink }

// setup returns the description of the cluster for launchers.
func setup(r *state.Record, side launch.Side, root bool) (launch.Setup, error) {
	s := launch.Setup{Side: side, Cluster: r.Name, Interface: "eth0", Root: root, Devices: r.Devices()}
	for _, h := range r.Hosts() {
		s.Ranks += h.Slots
	}
	if len(r.VMs) == 0 {
		return s, fmt.Errorf("cluster %s has no VMs", r.Name)
	}
	var err error
	if sub := r.VMs[0].Subnet; sub == "" {
		s.Interface, s.Subnet = "lo", netip.MustParsePrefix("127.0.0.0/8")
	} else if s.Subnet, err = netip.ParsePrefix(sub); err != nil {
		return s, err
	} else if s.Subnet == state.UplinkHost.Masked() {
		s.Interface = "eth1"
	}
	dir := state.VMDir
	s.Agent = state.VMAgent
	if side == launch.OnHost {
		if dir, err = r.Dir(); err != nil {
			return s, err
		}
		s.Agent = filepath.Join(dir, launch.AgentName)
	}
	if r.Fabric != "" {
		s.Fabric = state.FabricDir + "/" + state.FabricFile
		s.Providers = providers(r, "mpirun", "mpiexec")
		s.OtherHosts = len(r.Overlay) > 0 || len(r.Remote) > 1
		s.UCX, s.PreferUCX = r.UCX != "", r.Spec.Fabric == "ucx"
		s.RegionRanks = regionRanks(r)
		s.Overcommitted = r.Plan != nil && r.Plan.Overcommitted
	}
	s.OpenMPIHosts = filepath.Join(dir, state.HostsDir, state.OpenMPIHosts)
	s.MPICHHosts = filepath.Join(dir, state.HostsDir, state.MPICHHosts)
	return s, nil
}

// regionRanks returns the number of ranks for which a region has room: one per vCPU of the VMs on one host, doubled
// because an MPI library may open the region twice. The fewer ranks, the larger each one's part. 0: the region is not
// in the plan.
func regionRanks(r *state.Record) int {
	if r.Plan == nil || r.Plan.Region == nil {
		return 0
	}
	of, most := map[string]int{}, 0
	for _, v := range r.VMs {
		of[v.Host] += v.VCPUs
		most = max(most, of[v.Host])
	}
	for _, h := range r.Overlay {
		n := 0
		for _, v := range h.VMs {
			n += v.VCPUs
		}
		most = max(most, n)
	}
	return max(leastRegionRanks, 2*most)
}

// leastRegionRanks is the minimum for any region, because more ranks than vCPUs may be started.
const leastRegionRanks = 16

// providers returns the directories with additional libfabric providers of the MPI libraries of launchers, given by
// their names in the caller's PATH or by their paths, if the VMs have the same files.
func providers(r *state.Record, launchers ...string) []string {
	var folders []string
	if r.Spec.Root != "host" {
		return nil
	}
	for _, name := range launchers {
		if path, err := exec.LookPath(name); err == nil {
			for _, f := range launch.ProviderFolders(path) {
				if !slices.Contains(folders, f) {
					folders = append(folders, f)
				}
			}
		}
	}
	return folders
}

// LaunchVariables returns the variables with which any known launcher on this host starts its ranks in the VMs, based
// on the environment environ.
func LaunchVariables(r *state.Record, environ []string) ([]string, error) {
	if !uplink(r) {
		return nil, fmt.Errorf("the VMs of cluster %s have no uplink to this host, which an MPI launcher on it needs: "+
			"start the launcher in a VM (nearmetal exec mpirun …), or the cluster with a QEMU that has the user network", r.Name)
	}
	name, _ := os.Hostname()
	if err := launch.CheckHosts(r.Hosts(), name); err != nil {
		return nil, err
	}
	s, err := setup(r, launch.OnHost, os.Geteuid() == 0)
	if err != nil {
		return nil, err
	}
	return launch.Env(s, environ)
}

// hostEnvironment returns the whole environment of a launcher on this host.
func hostEnvironment(r *state.Record) ([]string, error) {
	own := append(os.Environ(), session.Pairs(r.Spec.Env)...)
	vars, err := LaunchVariables(r, own)
	if err != nil {
		return nil, err
	}
	return append(own, vars...), nil // of two values for a name the last counts (os/exec)
}

// VMEnvironment returns the environment of a command in a VM: the caller's variables that are meaningful there, the
// cluster file's, those in over, and those by which an MPI launcher started there reaches the other VMs.
func VMEnvironment(r *state.Record, over []string) ([]string, error) {
	return vmEnvironment(r, over, "")
}

// vmEnvironment is VMEnvironment for a program. If that is a launcher that is named by a path, its library may differ
// from that of the mpirun in PATH.
func vmEnvironment(r *state.Record, over []string, program string) ([]string, error) {
	env := session.Environment(os.Environ(), r.Caller.Identity(), session.Pairs(r.Spec.Env), over)
	s, err := setup(r, launch.InVM, os.Geteuid() == 0)
	if err != nil {
		return nil, err
	}
	if s.Fabric != "" && strings.Contains(program, "/") && launch.Named(program) {
		s.Providers = providers(r, program, "mpirun", "mpiexec")
	}
	vars, err := launch.Env(s, env)
	if err != nil {
		return nil, err
	}
	return preloaded(r, session.Environment(env, vars)), nil
}

// preloaded returns environ, of a program in a VM, with the transport for UCX, if the VMs have it.
func preloaded(r *state.Record, environ []string) []string {
	if r.UCX == "" {
		return environ
	}
	return launch.Preload(environ, state.FabricDir, state.UCXFile)
}
