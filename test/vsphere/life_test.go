package vsphere

import (
	"os"
	"strings"
	"testing"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// lifeFile is a cluster of two VMs.
const lifeFile = `
name: life
backend: vsphere
root: backend
vms: [{name: vm, count: 2, vcpus: 2, memory: 4GiB}]
network: {subnet: ` + vcsim.GuestSubnet + `}
vsphere: {template: ` + vcsim.Template + `, portGroup: DC0_DVPG0}
`

// guests starts a vCenter whose VMs have guests, and keeps this user's clusters in a folder of the test's.
func guests(t *testing.T) *vcsim.Server {
	t.Helper()
	if err := vcsim.GuestsWork(); err != nil {
		t.Skip(err)
	}
	s := vcsim.Start(t, vcsim.Options{Guests: true})
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("GOVC_GUEST_LOGIN", vcsim.GuestLogin)
	return s
}

// A cluster from up to down: the key goes by VMware Tools, the agent by ssh, programs run in both VMs, and vCenter is as before.
func TestUpDown(t *testing.T) {
	guests(t)
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, errs, code := run(t, stdin, args...)
		if code != 0 {
			t.Fatalf("nearmetal %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out + errs
	}
	t.Log(must(lifeFile, "up", "-f", "-"))
	t.Log(must("", "ps"))
	t.Log(must("", "exec", "life/vm1", "--", "sh", "-c", "hostname; cat /etc/hosts"))
	os.WriteFile(t.TempDir()+"/x", nil, 0o600)
	t.Log(must("", "verify", "life"))
	t.Log(must("", "logs", "life/vm0"))
	t.Log(must("", "down", "life"))
}
