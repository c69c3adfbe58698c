package sriov

import (
	"fmt"
	"os"
	"strings"

	"nearmetal/internal/host/device"
)

// register reads a VF's register RXDCTL0, whose bit 25 enables a receive queue, and writes it if value is not "".
// The VF is awake for that (vfio-pci lets one sleep that nobody has open), and answers to its memory.
func register(at, value string) string {
	return "cd /sys/bus/pci/devices/" + at + ` && echo on >power/control && python3 -c '
import mmap, os, struct, sys
os.pwrite(os.open("config", os.O_RDWR), b"\x02\x00", 4)
m = mmap.mmap(os.open("resource0", os.O_RDWR), 16384)
if sys.argv[1]:
    m[0x2828:0x282c] = struct.pack("<I", int(sys.argv[1], 0))
print("%08x" % struct.unpack("<I", m[0x2828:0x282c]))
' "` + value + `"`
}

// queueEnabled is that bit, as register prints the register with nothing else set.
const queueEnabled = "02000000"

// usersInTurn has jobs of several users lease both VFs, as Slurm's prolog and epilog do. What one left in a VF's
// registers the next one does not find. With NEARMETAL_SRIOV=1 a VF that a user's process kept open is set aside until that
// lets go.
func (l *lab) usersInTurn(nm string, vfs []*device.Function) {
	t := l.T
	t.Helper()
	var gres strings.Builder
	for _, f := range vfs {
		fmt.Fprintf(&gres, "Name=vf Type=igb File=/dev/vfio/%d\\n", f.Group)
	}
	l.Sh("mkdir -p /run/leases/jobs && printf '" + gres.String() + "' >/run/leases/gres.conf")
	vf := "SLURM_CONF=/run/leases/slurm.conf " + nm + " slurm-vf "
	lease := func(job string, uid int, indices string) string {
		return fmt.Sprintf("%slease --state /run/leases/jobs --job %s --node n1 --uid %d --gid %d --gres 'vf:igb:%d(IDX:%s)'",
			vf, job, uid, uid, 1+strings.Count(indices, "-"), indices)
	}
	back := func(job string) string { return vf + "return --state /run/leases/jobs --job " + job }
	group0, group1 := fmt.Sprintf("/dev/vfio/%d", vfs[0].Group), fmt.Sprintf("/dev/vfio/%d", vfs[1].Group)

	if got := l.Sh(lease("7.n1", 65533, "0")); got != vf0+"\n" {
		t.Fatalf("leased: %q", got)
	}
	if got := l.Sh(register(vf0, "0x"+queueEnabled)); got != queueEnabled+"\n" {
		t.Fatalf("the first user wrote %s to the VF, and reads %q", queueEnabled, got)
	}
	l.Sh(back("7.n1"))
	if got := l.Sh(register(vf0, "")); got != queueEnabled+"\n" {
		t.Fatalf("the first user left %q in the VF, want %s: the rest would prove nothing", got, queueEnabled)
	}
	l.Sh(lease("8.n1", 65534, "0"))
	if got := l.Sh(register(vf0, "") + "; stat -c %u " + group0); got != "00000000\n65534\n" {
		t.Errorf("the second user found %q in the VF, and its file's owner", got)
	}
	l.Step("a VF reset between two users")

	// The rest takes half a minute: a VF is waited for, and a lease tries first to take back what an earlier one left.
	if os.Getenv("NEARMETAL_SRIOV") == "" {
		l.Sh(back("8.n1"))
		return
	}
	// The second user keeps its group open beyond the job's end.
	l.Sh("setpriv --reuid=65534 --clear-groups sh -c 'exec 9<>" + group0 + "; exec sleep 1000' >/dev/null 2>&1 & echo $! >/run/leases/holder" +
		"; until readlink /proc/$!/fd/9 | grep -q vfio; do :; done")
	l.Refused(back("8.n1"), vf0+" is in use by sleep (process ")
	if got := l.Sh("stat -c %u " + group0); got != "0\n" {
		t.Errorf("the file of a VF that is held is user %q's", got)
	}
	got := l.Sh(lease("9.n1", 65532, "0"))
	if !strings.HasPrefix(got, vf1+"\n# ") || !strings.Contains(got, vf0+" is in use by sleep (process ") || !strings.Contains(got, "set aside") {
		t.Errorf("in a held VF's place: %s", got)
	}
	if got := l.Sh("stat -c %u " + group1); got != "65532\n" {
		t.Errorf("the file of the VF in its place is user %q's", got)
	}
	l.Sh(back("9.n1"))
	l.Sh("kill $(cat /run/leases/holder); while test -e /proc/$(cat /run/leases/holder); do :; done")
	if got := l.Sh(lease("10.n1", 65531, "0") + "; stat -c %u " + group0); got != vf0+"\n65531\n" {
		t.Errorf("after the holder's end: %q", got)
	}
	l.Sh(back("10.n1"))
	l.Step("a held VF set aside, and leased again")
}
