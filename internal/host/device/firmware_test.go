package device

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"nearmetal/internal/host/change"
	"nearmetal/internal/text"
)

// theCard is a program that answers as mstconfig 4.21 for a card with two ports; the values are in a file next to it.
const theCard = `#!/bin/sh
# Stands for mstconfig: as it, asks nothing with -y, and shows what the next boot has.
db="$(dirname "$0")/values"
yes=
[ "$1" = -y ] && { yes=1; shift; }
[ "$1" = -d ] && [ "$2" = 0000:41:00.0 ] || { echo "-E- Failed to open the device"; exit 3; }
shift 2
echo "$@" >>"$db.log"
case $1 in
query)
	printf '\nDevice #1:\n----------\n\nDevice type:    ConnectX6           \nName:           MCX653106A-HDA_Ax   \n'
	printf 'Description:    ConnectX-6 VPI adapter card; NUM_OF_VFS 99\nDevice:         0000:41:00.0        \n\n'
	printf 'Configurations:                              Next Boot       \n'
	printf '         MEMIC_BAR_SIZE                      0               \n'
	printf '         HOST_CHAINING_DESCRIPTORS           Array[0..7]     \n'
	while IFS== read -r n v; do
		case $n in
		SRIOV_EN) [ $v = 1 ] && v='True(1)' || v='False(0)' ;;
		LINK_TYPE*) [ $v = 1 ] && v='IB(1)' || v='ETH(2)' ;;
		esac
		printf '%-8s %-35s %-16s\n' "" $n "$v"
	done <"$db"
	;;
set)
	[ "$yes" ] || { echo " Apply new Configuration? (y/n) [n] : "; exit 0; }
	shift
	for s; do
		[ "$s" = NUM_OF_VFS=1000 ] && { echo "-E- Failed to set configuration: the value is too large"; exit 3; }
	done
	[ "$NEARMETAL_TEST_DEVICE_DIE" = 1 ] && kill -9 $PPID && sleep 60 # ends with its parent
	for s; do sed -i "s/^${s%%=*}=.*/$s/" "$db"; done
	[ "$NEARMETAL_TEST_DEVICE_DIE" = 2 ] && kill -9 $PPID
	printf ' Apply new Configuration? (y/n) [n] : y\nApplying... Done!\n-I- Please reboot machine to load new configurations.\n'
	;;
esac
`

// withMstconfig makes the captured card a Mellanox card with a fake mstconfig in PATH.
func withMstconfig(t *testing.T, script string) (h *Host, values string) {
	t.Helper()
	root := capture(t, "s0")
	os.WriteFile(root+slot+"/"+thePF+"/vendor", []byte("0x15b3\n"), 0o644)
	dir := t.TempDir()
	values = filepath.Join(dir, "values")
	os.WriteFile(values, []byte("NUM_OF_VFS=0\nSRIOV_EN=0\nLINK_TYPE_P1=2\nLINK_TYPE_P2=2\n"), 0o644)
	if script != "" {
		if err := os.WriteFile(filepath.Join(dir, "mstconfig"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	if script == "" {
		t.Setenv("PATH", dir)
	}
	was := runsPrograms
	runsPrograms = func(string) bool { return true }
	t.Cleanup(func() { runsPrograms = was })
	return open(t, root), values
}

func TestFirmware(t *testing.T) {
	h, values := withMstconfig(t, theCard)
	before, _ := os.ReadFile(values)
	list, err := h.PlanFirmware(ctx, thePF, FirmwareWant{"ib", 8})
	want := []FirmwareChange{{"LINK_TYPE_P1", "2", "1"}, {"NUM_OF_VFS", "0", "8"}, {"SRIOV_EN", "0", "1"}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Fatalf("%v, %v", list, err)
	}
	if now, _ := os.ReadFile(values); string(now) != string(before) {
		t.Errorf("a plan wrote %s", now)
	}
	if err := h.SetFirmware(ctx, thePF, list); err != nil {
		t.Fatal(err)
	}
	if now, _ := os.ReadFile(values); string(now) != "NUM_OF_VFS=8\nSRIOV_EN=1\nLINK_TYPE_P1=1\nLINK_TYPE_P2=2\n" {
		t.Errorf("set: %s", now)
	}
	if d, err := h.Show(ctx, thePF); err != nil || d.FirmwareSettings["LINK_TYPE_P1"] != "IB(1)" || d.FirmwareSettings["NUM_OF_VFS"] != "8" {
		t.Errorf("%+v, %v", d, err)
	}
	if list, err := h.PlanFirmware(ctx, thePF, FirmwareWant{"ib", 8}); err != nil || len(list) != 0 {
		t.Errorf("again: %v, %v", list, err)
	}
	if did, err := h.Release(thePF); err != nil || len(did) != 3 || !strings.Contains(did[0].String(), "cold boot") {
		t.Errorf("%v, %v", did, err)
	}
	if now, _ := os.ReadFile(values); string(now) != string(before) {
		t.Errorf("after release: %s", now)
	}
	// If the card rejects the value, nothing is changed, and nothing is left to undo.
	wantErr(t, h.SetFirmware(ctx, thePF, []FirmwareChange{{"NUM_OF_VFS", "0", "1000"}}), "the value is too large")
	if did, err := h.Release(thePF); err != nil || len(did) != 0 {
		t.Errorf("%v, %v", did, err)
	}
	// Another card in the slot is not changed.
	if err := h.SetFirmware(ctx, thePF, list); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(h.path(slot, thePF, "device"), []byte("0x1017\n"), 0o644)
	if did, err := h.Release(thePF); err != nil || len(did) != 0 {
		t.Errorf("%v, %v", did, err)
	}
}

// TestKillFirmware: if killed before or after mstconfig writes, recovery restores the firmware.
func TestKillFirmware(t *testing.T) {
	for n := 1; n <= 2; n++ {
		h, values := withMstconfig(t, theCard)
		before, _ := os.ReadFile(values)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), helper+"=firmware "+h.root, fmt.Sprintf("%s=%d", die, n))
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() >= 0 {
			t.Fatalf("not killed: %v %s", err, out)
		}
		if now, _ := os.ReadFile(values); (string(now) != string(before)) != (n == 2) {
			t.Errorf("killed at %d: %s", n, now)
		}
		if _, err := change.Recover(h.State()); err != nil {
			t.Error(err)
		}
		if now, _ := os.ReadFile(values); string(now) != string(before) {
			t.Errorf("killed at %d, after recovery: %s", n, now)
		}
		if list, _ := change.List(h.State()); len(list) != 0 {
			t.Errorf("left in the journals: %+v", list)
		}
	}
}

// TestFirmwareRefused: each unusable kind of mstconfig is one clear line.
func TestFirmwareRefused(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"none":    {"", "package mstflint"},
		"error":   {"#!/bin/sh\necho '-E- Failed to open the device'\nexit 3\n", "Failed to open the device"},
		"silent":  {"#!/bin/sh\nexit 1\n", "exit status 1"},
		"empty":   {"#!/bin/sh\n", "has no setting"},
		"endless": {"#!/bin/sh\nwhile :; do echo NUM_OF_VFS 8 NUM_OF_VFS 8; done\n", "more than"},
		"control": {"#!/bin/sh\nprintf -- '-E- a\\033[2Jb\\n'; exit 1\n", "a[2Jb"},
		"values":  {"#!/bin/sh\nprintf 'SRIOV_EN x;y\\nNUM_OF_VFS 99999999999\\n'\n", "has no setting"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := withMstconfig(t, tt.script)
			_, err := h.PlanFirmware(ctx, thePF, FirmwareWant{"", 8})
			wantErr(t, err, thePF, tt.want)
		})
	}
	h, _ := withMstconfig(t, theCard)
	for _, w := range []FirmwareWant{{"", 1024}, {"", -2}, {"infiniband", -1}, {"ib\n", 0}} {
		_, err := h.PlanFirmware(ctx, thePF, w)
		wantErr(t, err, "is not")
	}
	os.WriteFile(h.path(slot, thePF, "vendor"), []byte("0x8086\n"), 0o644)
	_, err := h.PlanFirmware(ctx, thePF, FirmwareWant{"ib", -1})
	wantErr(t, err, "not of Mellanox")
	runsPrograms = func(string) bool { return false }
	os.WriteFile(h.path(slot, thePF, "vendor"), []byte("0x15b3\n"), 0o644)
	_, err = h.PlanFirmware(ctx, thePF, FirmwareWant{"ib", -1})
	wantErr(t, err, "a captured tree")
}

// TestFirmwareSettings: with all columns of query -e the last one is the next boot's.
func TestFirmwareSettings(t *testing.T) {
	got := firmwareSettings(`
Configurations:                              Default         Current         Next Boot
*        NUM_OF_VFS                          0               4               8
*        SRIOV_EN                            False(0)        True(1)         True(1)
         LINK_TYPE_P1                        IB(1)           IB(1)           ETH(2)
The '*' shows parameters with next value different from default/current value.
`)
	if want := map[string]string{"NUM_OF_VFS": "8", "SRIOV_EN": "True(1)", "LINK_TYPE_P1": "ETH(2)"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func FuzzFirmwareSettings(f *testing.F) {
	f.Add("*  NUM_OF_VFS  8\n  LINK_TYPE_P1  IB(1)\n")
	f.Add("SRIOV_EN True(1) False(0)\n\x00\n")
	f.Fuzz(func(t *testing.T, said string) {
		for n, v := range firmwareSettings(said) {
			if !firmwareNames[n] || len(v) >= 64 || text.ASCII(v) != v {
				t.Fatalf("%q: %q", n, v)
			}
			if d, ok := numeric(v); ok && (len(d) > 6 || strings.Trim(d, "0123456789") != "") {
				t.Fatalf("%q is %q", v, d)
			}
		}
	})
}
