package cluster

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"

	"nearmetal/internal/guest"
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

	vmHostsDir = "vm-hosts" // what is pushed to the VMs
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

func (c *Cluster) hosts() []launch.Host {
	r := c.Record()
	return r.Hosts()
}

// linkLauncher puts the remote shell and the host files into the cluster's directory.
func (c *Cluster) linkLauncher() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := launch.Link(c.dir, exe); err != nil {
		return err
	}
	// Where VMs get their addresses late, awaitAddresses writes them. The front of several hosts has no wiring of its own.
	if c.wiring != nil && c.wiring.late {
		return nil
	}
	return c.writeHostFiles()
}

// writeHostFiles writes the host files, for the host and for the VMs.
func (c *Cluster) writeHostFiles() error {
	// On the host the VMs' names are not known: hydra, which looks them up, gets addresses.
	if err := writeHostfiles(filepath.Join(c.dir, HostsDir), c.hosts(), launch.AddressHostfile); err != nil {
		return err
	}
	return writeHostfiles(filepath.Join(c.dir, vmHostsDir), c.hosts(), launch.Hostfile)
}

// writeHostfiles makes dir with the two host files; mpich writes that of MPICH.
func writeHostfiles(dir string, hosts []launch.Host, mpich func([]launch.Host, string) (string, error)) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	write := func(name string, text string, err error) error {
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
	}
	text, err := launch.Hostfile(hosts, "openmpi")
	if err := write(OpenMPIHosts, text, err); err != nil {
		return err
	}
	text, err = mpich(hosts, "mpich")
	return write(MPICHHosts, text, err)
}

// putHostfiles puts the host files into a VM, for launchers that are started there.
func (c *Cluster) putHostfiles(ctx context.Context, a *guest.Agent) error {
	return a.Push(ctx, guest.Copy{Local: filepath.Join(c.dir, vmHostsDir), Remote: VMDir + "/" + HostsDir})
}
