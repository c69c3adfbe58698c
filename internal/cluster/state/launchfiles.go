package state

import (
	"net/netip"
	"path/filepath"

	"nearmetal/internal/launch"
)

// Paths of the files for MPI launchers: on the host below the cluster's directory, in a VM below VMDir.
const (
	// VMDir is nearmetal's own directory in a VM.
	VMDir = "/run/nearmetal"
	// VMAgent is the remote shell in a VM.
	VMAgent = VMDir + "/bin/nearmetal-rsh"
	// HostsDir holds the host files, with these names, below both directories.
	HostsDir     = "hosts"
	OpenMPIHosts = "openmpi"
	MPICHHosts   = "mpich"
)

// Dir returns the directory of a running cluster.
func (r *Record) Dir() (string, error) {
	base, err := Base()
	return filepath.Join(base, r.Name), err
}

// Hosts returns the VMs as hosts for MPI launchers, with one slot per vCPU.
func (r *Record) Hosts() []launch.Host {
	var hosts []launch.Host
	for _, v := range r.Everywhere() {
		ip, _ := netip.ParseAddr(v.IP)
		hosts = append(hosts, launch.Host{Name: v.Name, IP: ip, Slots: v.VCPUs})
	}
	return hosts
}

// Paths of the libfabric provider in a VM: always a copy of the host's, regardless of the VM's root.
const (
	// FabricDir is the directory that libfabric searches.
	FabricDir = VMDir + "/libfabric"
	// FabricFile is the provider's name in FabricDir.
	FabricFile = "libivshmem-fi.so"
	// UCXFile is the transport for UCX, which programs preload, in FabricDir.
	UCXFile = "libnearmetal-ucx.so"
)
