package device

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nearmetal/internal/host/change"
	"nearmetal/test/hosttree"
)

// helper marks the test's program as the one that is killed.
const helper = "NEARMETAL_TEST_DEVICE"

func TestMain(m *testing.M) {
	words := strings.Fields(os.Getenv(helper))
	if len(words) != 2 {
		hosttree.InMemory()
		os.Exit(m.Run())
	}
	h, err := Open(words[1], 0)
	if err == nil {
		err = operate(h, words[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const oneVF = "0000:41:10.0"

func operate(h *Host, op string) error {
	var err error
	switch op {
	case "enable":
		err = h.EnableVFs(ctx, thePF, 2)
	case "disable":
		_, err = h.DisableVFs(ctx, thePF)
	case "bind":
		err = h.Bind(ctx, oneVF, os.Getuid(), os.Getgid())
	case "release":
		_, err = h.Release(oneVF)
	case "set":
		err = h.Set(ctx, oneVF, map[string]string{"mac": "02:00:00:00:00:01", "vlan": "7", "rate": "10"})
	case "set-guids":
		err = h.Set(ctx, oneVF, map[string]string{"node-guid": "02:00:00:00:00:00:00:01", "port-guid": "02:00:00:00:00:00:00:02", "policy": "up"})
	case "firmware":
		runsPrograms = func(string) bool { return true }
		var list []FirmwareChange
		if list, err = h.PlanFirmware(ctx, thePF, FirmwareWant{"ib", 8}); err == nil {
			err = h.SetFirmware(ctx, thePF, list)
		}
	case "eswitch":
		err = h.SetEswitch(ctx, thePF, "switchdev")
	case "release-card":
		_, err = h.Release(thePF)
	}
	return err
}

// TestKill kills each operation at each of its writes, before the kernel acts on it (and, if it acts at once, before
// and after it); recovery then restores the host, or finishes the undo.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	for _, tt := range []struct {
		op, tree string
		with     func(*kernel) // changes the tree; may be nil
		prepare  string        // the operation before op, "" for none
		least    int           // least number of writes
	}{
		{"enable", "s0", nil, "", 2},
		{"bind", "s1", nil, "", 2},
		{"release", "s1", nil, "bind", 2},
		{"disable", "s0", nil, "enable", 2},
		{"set", "s1", ethernetLinks, "", 6},
		{"release", "s1", ethernetLinks, "set", 6},
		{"set-guids", "s1", infinibandLinks, "", 6},
		{"release", "s1", infinibandLinks, "set-guids", 6},
		{"eswitch", "s1", ethernetLinks, "", 2},
		{"release-card", "s1", ethernetLinks, "eswitch", 2},
	} {
		t.Run(tt.prepare+">"+tt.op, func(t *testing.T) {
			if testing.Short() && tt.prepare != "" {
				t.Skip("short: the operations that undo are left out")
			}
			for n := 1; ; n++ {
				if !killedAt(t, tt.op, tt.tree, n, tt.with, tt.prepare) {
					if n <= tt.least {
						t.Errorf("the operation writes %d times only", n-1)
					}
					return
				}
			}
		})
	}
}

// killedAt runs an operation that is killed at write n; false: it has fewer writes.
func killedAt(t *testing.T, op, tree string, n int, with func(*kernel), prepare string) bool {
	t.Helper()
	root := capture(t, tree)
	k := emulate(t, root)
	if with != nil {
		with(k)
		k.settle()
	}
	h := open(t, root)
	before := k.state()
	if prepare != "" {
		if err := operate(h, prepare); err != nil {
			t.Fatal(err)
		}
		k.settle()
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+op+" "+root)
	if with != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", die, n))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	k.mu.Lock()
	k.writes = 0
	k.before = func(i int, _, _ string) {
		if i == n && with == nil {
			cmd.Process.Kill()
			cmd.Process.Wait()
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.mu.Unlock()
	err := cmd.Wait()
	k.settle()
	k.mu.Lock()
	k.before = nil
	killed := k.writes >= n
	k.mu.Unlock()
	if with != nil {
		killed = cmd.ProcessState.ExitCode() < 0 // by a signal
	}
	if !killed {
		if err != nil {
			t.Errorf("%s: %v %s", op, err, &out)
		}
		return false
	}
	if _, err := change.Recover(h.State()); err != nil {
		t.Errorf("%s killed at write %d: recover: %v", op, n, err)
	}
	k.settle()
	if after := k.state(); after != before {
		list, _ := change.List(h.State())
		if len(list) == 1 && !list[0].Open {
			// Killed after the last write, when the operation was complete: its changes stay, and can be undone.
			if _, err := change.Undo(h.State(), func(string) bool { return true }); err != nil {
				t.Error(err)
			}
			k.settle()
			after = k.state()
		}
		if after != before {
			t.Errorf("%s killed at write %d: before\n%safter\n%s", op, n, before, after)
		}
	}
	if list, _ := change.List(h.State()); len(list) != 0 {
		t.Errorf("%s killed at write %d: left in the journals: %+v", op, n, list)
	}
	return true
}
