package vsphere

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// The owner of a cluster is killed in the middle of a call, or just after vCenter has carried it out. The next command undoes all,
// also a clone that vCenter was still making. NEARMETAL_ALL_CALLS tries each step both ways, in 20 s; else three.
func TestKilled(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	before := inventory()
	file := strings.Replace(lifeFile, "portGroup: DC0_DVPG0", "switch: DVS0", 1)
	type step struct {
		method string
		after  bool
	}
	steps := []step{{"AddDVPortgroup_Task", true}, {"CloneVM_Task", true}, {"PowerOnVM_Task", false}}
	if os.Getenv("NEARMETAL_ALL_CALLS") != "" {
		steps = nil
		for _, m := range []string{"AddDVPortgroup_Task", "CloneVM_Task", "ReconfigVM_Task", "CustomizeVM_Task", "PowerOnVM_Task"} {
			steps = append(steps, step{m, false}, step{m, true})
		}
	}
	for _, at := range steps {
		cmd := exec.Command(program(t), "up", "-f", "-")
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = strings.NewReader(file), &errs
		var once sync.Once
		s.Fail(func(_ int, m string) (f vcsim.Failure) {
			if m == at.method {
				once.Do(func() { f = vcsim.Failure{Drop: true, After: at.after, Then: func() { kill(t, cmd.Process.Pid) }} })
			}
			return f
		})
		if err := cmd.Run(); err == nil {
			t.Fatalf("%v: the owner was not killed", at)
		}
		s.Fail(nil)
		out, said, code := run(t, "", "ps")
		if code != 0 || strings.Contains(out, "life") || !strings.Contains(said, "removed what cluster life left") {
			t.Errorf("%v: %d, %s%s (%s)", at, code, out, said, errs.String())
		}
		if after := inventory(); !slices.Equal(after, before) {
			t.Fatalf("%v: left: %v", at, after)
		}
	}
}

// The owner is killed while vCenter makes its clones, which take long. The next command waits for the clones' ends, and removes what they
// have made.
func TestKilledSlowClone(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	before := inventory()
	cmd := exec.Command(program(t), "up", "-f", "-")
	cmd.Stdin = strings.NewReader(lifeFile)
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	defer release()
	var once sync.Once
	s.Tasks(func(name string) types.BaseMethodFault {
		if strings.HasPrefix(name, "CloneV") {
			once.Do(func() { kill(t, cmd.Process.Pid) })
			<-slow
		}
		return nil
	})
	if err := cmd.Run(); err == nil {
		t.Fatal("the owner was not killed")
	}
	var listed, waited atomic.Bool
	s.Fail(func(_ int, m string) vcsim.Failure {
		switch {
		case m == "ModifyListView": // which has the clones' tasks watched
			listed.Store(true)
		case m == "WaitForUpdatesEx" && listed.Load():
			waited.Store(true)
			release()
		}
		return vcsim.Failure{}
	})
	_, said, code := run(t, "", "ps")
	release() // where nothing has waited
	s.Fail(nil)
	if code != 0 || !strings.Contains(said, "removed what cluster life left") || !waited.Load() {
		t.Errorf("%d, %s; it waited for a clone: %v", code, said, waited.Load())
	}
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
}

// program is nearmetal's path.
func program(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../build/nearmetal")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kill kills the children of a process, and waits until they have gone.
func kill(t *testing.T, parent int) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", parent))
	for _, e := range tasks { // a thread has started it
		more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", parent, e.Name()))
		list = append(append(list, ' '), more...)
	}
	if err != nil {
		t.Error(err)
	}
	for _, f := range strings.Fields(string(list)) {
		if pid, err := strconv.Atoi(f); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Ctrl-C while the VMs are cloned ends the start with nothing left, and the command waits for that.
func TestInterrupted(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	before := inventory()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), "up", "-f", "-")
	cmd.Stdin = strings.NewReader(lifeFile)
	var once sync.Once
	s.Fail(func(_ int, m string) vcsim.Failure {
		if m == "CustomizeVM_Task" {
			once.Do(func() { cmd.Process.Signal(os.Interrupt) })
		}
		return vcsim.Failure{}
	})
	if err := cmd.Run(); err == nil {
		t.Error("it went on")
	}
	if out := ok(t, "", "ps"); strings.Contains(out, "life") {
		t.Error(out)
	}
	if after := inventory(); !slices.Equal(after, before) {
		t.Errorf("left: %v", after)
	}
}
