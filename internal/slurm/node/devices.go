package node

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/spec"
)

// share divides the requested VFs, "[TYPE:]N", equally among the VMs. A cluster file that defines devices of its VMs
// is not changed: its VMs get them from the job's VFs.
func share(c *spec.Cluster, vf string, a Allocation) error {
	if vf == "" {
		return nil
	}
	n, err := strconv.Atoi(vf[strings.LastIndexByte(vf, ':')+1:])
	if err != nil || n < 1 {
		return errRequest
	}
	if len(a.Devices) < n {
		return fmt.Errorf("%d VFs are asked for, and the job has %d on %s: add --gres=vf:%s", n, len(a.Devices), a.Node, vf)
	}
	for i := range c.VMs {
		if len(c.VMs[i].Devices) > 0 {
			return nil
		}
	}
	vms := count(c.VMs)
	if n%vms != 0 {
		return fmt.Errorf("--vm-vf: %d VFs cannot be shared out evenly to the %d VMs of %s: ask for %d", n, vms, a.Node, (n/vms+1)*vms)
	}
	for i := range c.VMs {
		c.VMs[i].Devices = []spec.Device{{Type: "vf", Count: n / vms}}
	}
	return nil
}
