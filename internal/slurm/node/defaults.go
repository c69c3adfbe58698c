package node

import (
	"os"

	"nearmetal/internal/site"
	"nearmetal/internal/spec"
)

// siteDefaults returns the parts of the site's and the user's config.yaml that apply to a job on this node: the
// contents and environment of the VMs. Their number, size, placement, network, region and devices follow from the
// job.
func siteDefaults() ([]*spec.Cluster, error) {
	all, err := site.Defaults()
	if err != nil {
		return nil, err
	}
	var list []*spec.Cluster
	for _, d := range all {
		list = append(list, &spec.Cluster{
			Root: d.Root, Kernel: d.Kernel, KernelModules: d.KernelModules, KernelArgs: d.KernelArgs, Home: d.Home, Shares: d.Shares,
			Env: d.Env, Fabric: d.Fabric, Isolation: d.Isolation,
		})
	}
	return list, nil
}

// addShares adds the shares of defaults to those of a job.
func addShares(c *spec.Cluster, defaults []*spec.Cluster) {
	for _, d := range defaults {
		for _, s := range d.Shares {
			c.AddShare(s, os.Geteuid() == 0)
		}
	}
}
