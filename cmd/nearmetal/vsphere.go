package main

import (
	"context"
	"io"

	"nearmetal/internal/backend/elsewhere"
	"nearmetal/internal/topology"
)

// vspherePart is what nearmetal-vsphere does beside its back end. nearmetal itself has none.
type vspherePart interface {
	// Topology reads an ESXi host by its name or path in vCenter.
	Topology(ctx context.Context, host string) (*topology.Host, error)
	// Gather reads a host, and returns what writes its capture.
	Gather(ctx context.Context, host, name string, anonymous bool) (func(io.Writer) error, error)
}

// vsphereHere is set in nearmetal-vsphere.
var vsphereHere vspherePart

// inVSphere returns what there is for vSphere; nearmetal becomes nearmetal-vsphere for it.
func inVSphere() (vspherePart, error) {
	if vsphereHere == nil {
		return nil, elsewhere.Become("nearmetal-vsphere", nil)
	}
	return vsphereHere, nil
}
