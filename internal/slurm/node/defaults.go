package node

import (
	"os"

	"nearmetal/internal/site"
	"nearmetal/internal/spec"
)

// siteDefaults returns what a job takes of the site's and the user's config.yaml on this node: what is in the VMs and
// around them. How many there are, their size and place, their network, region and devices follow from the job.
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
