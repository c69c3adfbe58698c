//go:build vsphere

package all

import (
	"nearmetal/internal/backend/elsewhere"
	_ "nearmetal/internal/backend/openstack/tenant"
	_ "nearmetal/internal/backend/vsphere"
)

func init() { elsewhere.Began() }
