package libvirt

import (
	"testing"

	"nearmetal/test/domains"
)

// What nearmetal explain --fix writes of hundreds of random domains is valid, can be defined, and is nowhere worse.
func TestRandomDomains(t *testing.T) {
	needs(t, "xmllint", "virsh")
	machines := domains.Machines(t, "../topology", "dl380g8", "c6100", "r740", "grace", "epyc-nps4", "spr-snc4", "isolated", "laptop", "tr2990wx", "xeonmax-hbm", "genoa-cxl", "slurm-job")
	domains.Check(t, machines, 1000, 400)
}
