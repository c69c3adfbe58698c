package explain_test

import (
	"testing"

	"nearmetal/test/domains"
)

// TestRandomDomains: test/libvirt has more random domains.
func TestRandomDomains(t *testing.T) {
	domains.Check(t, domains.Machines(t, "../../test/topology", "dl380g8", "c6100", "r740", "grace", "epyc-nps4"), 1, 40)
}
