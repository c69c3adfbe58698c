package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/sockpair"
)

// attacked starts a QEMU with the code of testdata/attack.c in it, in a jail or not, and returns how it ended.
func attacked(t *testing.T, strict bool, what, with string) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "attack.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-pthread", "-o", lib, "testdata/attack.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := []string{"LD_PRELOAD=" + lib, "NM_ATTACK=" + what, "NM_ATTACK_WITH=" + with}
	caps := testCaps(t) // before the environment changes
	if !strict {
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			t.Setenv(name, value)
		}
	}
	m, err := Build(onePlan(), backend.Settings{Accel: host.TCG, Strict: strict}, caps)
	if err != nil {
		t.Fatal(err)
	}
	if strict {
		m.jailed.change = func(j *isolate.Jail) {
			j.Env = append(j.Env, env...)
			j.Binds = append(j.Binds, isolate.Bind{Path: lib})
		}
	}
	v, err := startIdle(t, m)
	if err != nil {
		skipWithoutNamespace(t, err)
		return err.Error()
	}
	awaitEnd(t, v)
	if v.Err() == nil {
		return "ended well"
	}
	return v.Err().Error()
}

// skipWithoutNamespace skips a test on a host that permits no namespaces.
func skipWithoutNamespace(t *testing.T, err error) {
	t.Helper()
	if strings.Contains(err.Error(), "lets you make no user namespace") && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// TestSandboxByTrying: the filter of system calls is in force: forbidden calls are tried in QEMU itself.
func TestSandboxByTrying(t *testing.T) {
	for _, strict := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "strict"}[strict]
		t.Run(name, func(t *testing.T) {
			if got := attacked(t, strict, "none", ""); !strings.Contains(got, "attack none: done") {
				t.Fatalf("the attack's code does not run: %s", got)
			}
			for _, what := range []string{"exec", "fork", "setuid", "reboot"} {
				if got := attacked(t, strict, what, "/proc/self/exe"); !strings.Contains(got, "signal 31") && !strings.Contains(got, "not permitted") {
					t.Errorf("%s: %s", what, got)
				}
			}
		})
	}
}

// TestJailByTrying compares what a compromised QEMU can access from its jail, and without one.
func TestJailByTrying(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	for what, with := range map[string]string{
		"open":    "/etc/passwd",
		"connect": fmt.Sprint(ln.Addr().(*net.TCPAddr).Port),
		"ptrace":  fmt.Sprint(victim.Process.Pid),
	} {
		if got := attacked(t, false, what, with); !strings.Contains(got, "attack "+what+": done") {
			t.Errorf("without a jail %s works: %s", what, got)
		}
		if got := attacked(t, true, what, with); strings.Contains(got, "done") || !strings.Contains(got, "attack "+what+": ") {
			t.Errorf("%s in a jail: %s", what, got)
		}
	}
}

// TestUplinkEnds: a VM in a jail ends with its user network and reports it, and neither outlives the other.
func TestUplinkEnds(t *testing.T) {
	start := func() *VM {
		m, err := Build(onePlan(), backend.Settings{Accel: host.TCG, Strict: true,
			Links: []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:00:00:01", Filtered: true}}}, testCaps(t))
		if err != nil {
			t.Fatal(err)
		}
		var links []*os.File
		for range 2 {
			ours, theirs, err := sockpair.Conn("filter")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ours.Close(); theirs.Close() })
			links = append(links, theirs)
		}
		v, err := startIdle(t, m, links...)
		if err != nil {
			skipWithoutNamespace(t, err)
			t.Fatal(err)
		}
		if len(v.helpers) != 1 {
			t.Fatalf("%d processes for the network", len(v.helpers))
		}
		return v
	}
	v := start()
	ours, _ := os.Readlink("/proc/self/ns/net")
	if its, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", v.helpers[0].cmd.Process.Pid)); its != ours {
		t.Errorf("the user network is in %s, this host's is %s", its, ours)
	}
	if its, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", v.PID())); its == ours {
		t.Error("QEMU is in this host's network")
	}
	v.helpers[0].kill()
	awaitEnd(t, v)
	if v.Err() == nil || !strings.Contains(v.Err().Error(), "user network ended") {
		t.Errorf("%v", v.Err())
	}
	v = start()
	v.Kill()
	select {
	case <-v.helpers[0].done:
	default:
		t.Error("the user network outlives its VM")
	}
}

// TestPinJailed: the threads that a QEMU in a pid namespace names are found, and pinned.
func TestPinJailed(t *testing.T) {
	vm := onePlan()
	m, err := Build(vm, backend.Settings{Accel: host.TCG, Strict: true}, testCaps(t))
	if err != nil {
		t.Fatal(err)
	}
	v, err := startIdle(t, m)
	if err != nil {
		skipWithoutNamespace(t, err)
		t.Fatal(err)
	}
	cpus, err := host.UsableCPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := cpus[len(cpus)-1]
	vm.Pins, vm.EmulatorCPUs = [][]int{{last}}, []int{cpus[0]}
	if err := v.Pin(context.Background(), vm); err != nil {
		t.Fatal(err)
	}
	list, err := v.QMP().VCPUs(context.Background())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, e := range must(os.ReadDir(fmt.Sprintf("/proc/%d/task", v.PID()))) {
		b := must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", v.PID(), e.Name())))
		if strings.Contains(string(b), fmt.Sprintf("\t%d\n", list[0].Thread)) && strings.Contains(string(b), "CPU 0/TCG") {
			if !strings.Contains(string(b), fmt.Sprintf("Cpus_allowed_list:\t%d\n", last)) {
				t.Errorf("the vCPU's thread is elsewhere: %s", b)
			}
			return
		}
	}
	t.Error("the vCPU's thread is not there")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestStrictRefuses: settings that would make a jail weaker are rejected.
func TestStrictRefuses(t *testing.T) {
	caps := capturedCaps(t, qemu72)
	strict := backend.Settings{Accel: host.TCG, Strict: true}
	open := strict
	open.Exports = []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}}
	unfiltered := strict
	unfiltered.Links = []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:00:00:01"}}
	for want, s := range map[string]backend.Settings{"isolation=strict: cannot hide host paths below /": open, "no filter": unfiltered} {
		if _, err := Build(onePlan(), s, caps); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	caps.Sandbox = false
	if _, err := Build(onePlan(), strict, caps); err == nil || !strings.Contains(err.Error(), "without seccomp") {
		t.Errorf("%v", err)
	}
	caps = capturedCaps(t, qemu72)
	script := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	caps.Path = script
	m, err := Build(onePlan(), strict, caps)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startIdle(t, m); err == nil || !strings.Contains(err.Error(), "isolation=strict") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
