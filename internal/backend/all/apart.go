//go:build !vsphere

package all

import "nearmetal/internal/backend/elsewhere"

func init() {
	elsewhere.Register("vsphere", "nearmetal-vsphere", ".vsphere.tar.gz")
	elsewhere.Register("openstack", "nearmetal-vsphere", "")
}
