package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"nearmetal/internal/cluster/provider"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
)

// vmFabricDir is the directory of the files that are pushed to the VMs.
const vmFabricDir = "vm-libfabric"

// prepareFabric decides whether the VMs get the provider, and copies the files to push into the cluster's directory.
func (m *VMs) prepareFabric(o options, region *plan.Region, notice func(string)) error {
	s := o.Spec
	if s.Fabric == "none" || region == nil {
		if o.Verbose && len(m.vms) > 1 && !m.caps.Remote { // a remote backend may promise a region: see Ways
			why := "fabric: none"
			if region == nil {
				why = "no region"
			}
			notice("MPI messages between VMs go over their network: " + why)
		}
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	path, why := provider.Find(s, exe)
	if why != "" {
		notice("MPI messages between VMs go over their network, not over the region: " + why)
		return nil
	}
	dir := m.own.Path(vmFabricDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	ucx := ""
	if s.Fabric != "libfabric" {
		if ucx, why = provider.FindUCX(s, path); why != "" {
			if o.Verbose || s.Fabric == "ucx" {
				notice("MPI libraries on UCX send between VMs over their network, not over the region: " + why)
			}
			ucx = ""
		}
	}
	for _, file := range []string{path, ucx} {
		if file == "" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o755); err != nil {
			return err
		}
	}
	if o.Verbose {
		which := "VMs"
		if m.net.Joined != nil {
			which = "VMs of one host"
		}
		notice(fmt.Sprintf("MPI libraries on libfabric send between %s over the region of %s: %s",
			which, roundSize(region.SizeBytes), path))
		if ucx != "" {
			notice(fmt.Sprintf("MPI libraries on UCX as well, by %s, which is preloaded", ucx))
		}
	}
	return m.own.Write(func(r *state.Record) { r.Fabric, r.UCX = path, ucx })
}

// putFabric copies the provider to a VM, and the UCX transport if requested.
func (m *VMs) putFabric(ctx context.Context, a *guest.Agent) error {
	if m.own.Record().Fabric == "" {
		return nil
	}
	return a.Push(ctx, guest.Copy{Local: m.own.Path(vmFabricDir), Remote: state.FabricDir})
}
