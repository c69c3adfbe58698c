package local

import (
	"context"
	"os"
	"path/filepath"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
)

// vmHostsDir is the directory of the host files that are pushed to the VMs.
const vmHostsDir = "vm-hosts"

// LinkLauncher links the remote shell for MPI launchers into the directory of the cluster own.
func LinkLauncher(own *state.Owned) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = launch.Link(own.Path(""), exe)
	return err
}

// WriteHostFiles writes the host files for MPI launchers, for the host and for the VMs of the cluster own.
func WriteHostFiles(own *state.Owned) error {
	r := own.Record()
	hosts := r.Hosts()
	// The host cannot resolve the VMs' names, which hydra looks up; its file for MPICH has addresses.
	if err := writeHostfiles(own.Path(state.HostsDir), hosts, launch.AddressHostfile); err != nil {
		return err
	}
	return writeHostfiles(own.Path(vmHostsDir), hosts, launch.Hostfile)
}

// writeHostfiles creates dir with the two host files; mpich formats that of MPICH.
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
	if err := write(state.OpenMPIHosts, text, err); err != nil {
		return err
	}
	text, err = mpich(hosts, "mpich")
	return write(state.MPICHHosts, text, err)
}

// putHostfiles copies the host files to a VM, for launchers that are started there.
func (m *VMs) putHostfiles(ctx context.Context, a *guest.Agent) error {
	return a.Push(ctx, guest.Copy{Local: m.own.Path(vmHostsDir), Remote: state.VMDir + "/" + state.HostsDir})
}
