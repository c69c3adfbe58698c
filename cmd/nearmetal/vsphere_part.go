package main

import (
	"context"
	"io"

	"nearmetal/internal/backend/elsewhere"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/topology"
)

// vspherePart is what nearmetal-vsphere does beside its backend. nearmetal itself has none.
type vspherePart interface {
	// AskPassword asks for the password where it is nowhere, and keeps it for the processes that carry a cluster out.
	AskPassword() error
	// Topology reads an ESXi host by its name or path in vCenter.
	Topology(ctx context.Context, host string) (*topology.Host, error)
	// Gather reads a host, and returns what writes its capture.
	Gather(ctx context.Context, host, name string, anonymous bool) (func(io.Writer) error, error)
	// Functions lists a host's PCI functions that VMs can have. SetPassthru and SetVFs change some, and return them as they
	// were and as they are then.
	Functions(ctx context.Context, host string) ([]esx.Function, error)
	SetPassthru(ctx context.Context, host string, which []string, on bool) (before, after []esx.Function, err error)
	SetVFs(ctx context.Context, host string, which []string, n int) (before, after []esx.Function, err error)
	// SVS and DVS make a switch of a host, or of several, or remove it; false: all was so already.
	SVS(ctx context.Context, host string, w esx.Switch, remove bool) (bool, error)
	DVS(ctx context.Context, hosts []string, w esx.Switch, remove bool) (bool, error)
	// Power returns a host's power policy, which it sets first unless policy is "", before and after that.
	Power(ctx context.Context, host, policy string) (before, after string, err error)
}

// vsphereHere is set in nearmetal-vsphere.
var vsphereHere vspherePart

// inVSphere returns what there is for vSphere; nearmetal becomes nearmetal-vsphere for it.
func inVSphere() (vspherePart, error) {
	if vsphereHere == nil {
		return nil, elsewhere.Become("nearmetal-vsphere")
	}
	return vsphereHere, nil
}
