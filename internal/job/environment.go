// Package job runs commands in clusters: with a cluster of their own (`nearmetal run`), in
// one that runs (exec, shell), or by way of an MPI launcher on the host.
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
	// auto: the launcher must be the VMs' own MPI, and the VMs must be able to call back.
	// Other hosts have files of their own: only the user knows whether these are the same.
	return r.Spec.Root == "host" && uplink(r) && len(r.Remote) == 0
}

func uplink(r *state.Record) bool { return len(r.VMs) > 0 && r.VMs[0].Uplink }

// setup returns what launchers need to know of the cluster.
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

// regionRanks is how many ranks are to have room in a region: one a vCPU of the VMs of one host, and as many again, since
// an MPI library may open the region twice. The fewer there are, the larger is each one's part. 0: the region is not of the plan.
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

// leastRegionRanks have room in any region: more ranks than vCPUs may be started.
const leastRegionRanks = 16

// providers are the folders with further libfabric providers of the MPI libraries that launchers, by their names in the
// caller's PATH or by their paths, belong to, as far as the VMs have the same files.
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

// LaunchVariables are what makes any known launcher on this host put its ranks into the
// VMs, over the environment environ.
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

// hostEnvironment is the whole environment of a launcher on this host.
func hostEnvironment(r *state.Record) ([]string, error) {
	own := append(os.Environ(), session.Pairs(r.Spec.Env)...)
	vars, err := LaunchVariables(r, own)
	if err != nil {
		return nil, err
	}
	return append(own, vars...), nil // of two of a name, the last counts (os/exec)
}

// VMEnvironment is the environment of a command in a VM: the caller's as far as it makes
// sense there, the cluster file's, what over says, and what lets an MPI launcher that is
// started there reach the other VMs.
func VMEnvironment(r *state.Record, over []string) ([]string, error) {
	return vmEnvironment(r, over, "")
}

// vmEnvironment is VMEnvironment for a program. Where that is a launcher that is named by a path, its library may be
// another one than that of the mpirun in PATH.
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

// preloaded is environ, of a program in a VM, with the transport for UCX, if the VMs have it.
func preloaded(r *state.Record, environ []string) []string {
	if r.UCX == "" {
		return environ
	}
	return launch.Preload(environ, state.FabricDir, state.UCXFile)
}
