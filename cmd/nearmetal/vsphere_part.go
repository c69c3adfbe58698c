package main

import (
	"context"
	"io"

	"nearmetal/internal/backend/elsewhere"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/topology"
)

// vspherePart is the part of nearmetal-vsphere other than its backend. nearmetal itself does not have it.
type vspherePart interface {
	// AskPassword asks for the password if it is not set anywhere, and keeps it for the processes that run a
	// cluster.
	AskPassword() error
	// Topology reads an ESXi host by its name or path in vCenter.
	Topology(ctx context.Context, host string) (*topology.Host, error)
	// Gather reads a host, and returns a function that writes its capture.
	Gather(ctx context.Context, host, name string, anonymous bool) (func(io.Writer) error, error)
	// Functions lists the PCI functions of a host that VMs can use. SetPassthru and SetVFs change some, and return
	// them before and after the change.
	Functions(ctx context.Context, host string) ([]esx.Function, error)
	SetPassthru(ctx context.Context, host string, which []string, on bool) (before, after []esx.Function, err error)
	SetVFs(ctx context.Context, host string, which []string, n int) (before, after []esx.Function, err error)
	// SVS and DVS create a switch of one host, or of several, or remove it; they return false if nothing had to be
	// changed.
	SVS(ctx context.Context, host string, w esx.Switch, remove bool) (bool, error)
	DVS(ctx context.Context, hosts []string, w esx.Switch, remove bool) (bool, error)
	// Power returns a host's power policy before and after it is set to policy; "" does not set it.
	Power(ctx context.Context, host, policy string) (before, after string, err error)
}

// vsphereHere is set in nearmetal-vsphere.
var vsphereHere vspherePart

// inVSphere returns the vSphere part. In nearmetal, which has none, the process becomes nearmetal-vsphere.
func inVSphere() (vspherePart, error) {
	if vsphereHere == nil {
		return nil, elsewhere.Become("nearmetal-vsphere")
	}
	return vsphereHere, nil
}
