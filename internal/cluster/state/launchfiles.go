package state

import (
	"net/netip"
	"path/filepath"

	"nearmetal/internal/launch"
)

// The files that MPI launchers are pointed to: on the host in the cluster's directory, in
// a VM in VMDir.
const (
	// VMDir is nearmetal's own directory in a VM.
	VMDir = "/run/nearmetal"
	// VMAgent is the remote shell in a VM.
	VMAgent = VMDir + "/bin/nearmetal-rsh"
	// HostsDir holds the host files below both, with these names.
	HostsDir     = "hosts"
	OpenMPIHosts = "openmpi"
	MPICHHosts   = "mpich"
)

// Dir returns the directory of a cluster that runs.
func (r *Record) Dir() (string, error) {
	base, err := Base()
	return filepath.Join(base, r.Name), err
}

// Hosts are the VMs as MPI launchers see them: a slot for each vCPU.
func (r *Record) Hosts() []launch.Host {
	var hosts []launch.Host
	for _, v := range r.Everywhere() {
		ip, _ := netip.ParseAddr(v.IP)
		hosts = append(hosts, launch.Host{Name: v.Name, IP: ip, Slots: v.VCPUs})
	}
	return hosts
}

// The libfabric provider in a VM: a copy of the host's, whatever the VM's root is.
const (
	// FabricDir is the folder that libfabric looks in.
	FabricDir = VMDir + "/libfabric"
	// FabricFile is the provider's name in it.
	FabricFile = "libivshmem-fi.so"
	// UCXFile is the transport for UCX, which programs preload, in the same folder.
	UCXFile = "libnearmetal-ucx.so"
)
