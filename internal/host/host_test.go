package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree makes a root directory of files: path → contents.
func tree(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		p := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Host{Root: root}
}

func TestDetectAccel(t *testing.T) {
	const (
		virt  = "processor\t: 0\nflags\t\t: fpu vmx sse2\n"
		plain = "processor\t: 0\nflags\t\t: fpu sse2\n"
	)
	novirt := tree(t, map[string]string{"proc/cpuinfo": plain, "dev/kvm": ""})
	nodev := tree(t, map[string]string{"proc/cpuinfo": virt})
	fake := tree(t, map[string]string{"proc/cpuinfo": virt, "dev/kvm": ""}) // can be opened, and is not KVM
	tests := []struct {
		name   string
		h      Host
		want   string
		accel  Accel
		reason string // part of it
		err    string
	}{
		{"tcg asked", novirt, "tcg", TCG, "", ""},
		{"no vmx", novirt, "auto", TCG, "no vmx or svm in /proc/cpuinfo: using TCG (emulation): timings are not meaningful", ""},
		{"no vmx, kvm asked", novirt, "kvm", "", "", "accel kvm: no vmx or svm in /proc/cpuinfo"},
		{"no device", nodev, "", TCG, "no /dev/kvm", ""},
		{"no device, kvm asked", nodev, "kvm", "", "", "no /dev/kvm"},
		{"no KVM behind the device", fake, "auto", TCG, "runs no VM (KVM_GET_API_VERSION: inappropriate ioctl for device)", ""},
		{"unknown", novirt, "xen", "", "", `accel "xen": not one of auto, kvm, tcg`},
		{"no cpuinfo", tree(t, nil), "kvm", "", "", "cpuinfo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			accel, reason, err := tt.h.DetectAccel(tt.want)
			if accel != tt.accel || !strings.Contains(reason, tt.reason) || (tt.reason == "") != (reason == "") {
				t.Errorf("got %q, %q", accel, reason)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if strings.Contains(reason, "\n") {
				t.Errorf("reason is more than one line: %q", reason)
			}
		})
	}
}

// TestSlowStrings: Zen 3 and Zen 4 only, if they show erms.
func TestSlowStrings(t *testing.T) {
	for cpuinfo, want := range map[string]bool{
		"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: fpu erms fsrm\n":             true,
		"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu fsrm\n":                                 false,
		"vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: fpu erms\n":                                 false,
		"vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu erms\n":                                  false,
		"vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: erms\n\nprocessor\t: 1\ncpu family\t: 25\n": false,
		"CPU implementer\t: 0x41\n": false,
		"":                          false,
	} {
		if got := tree(t, map[string]string{"proc/cpuinfo": cpuinfo}).SlowStrings(); got != want {
			t.Errorf("%q: %v", cpuinfo, got)
		}
	}
	if tree(t, nil).SlowStrings() {
		t.Error("true without /proc/cpuinfo")
	}
}

// TestProbeKVM runs the real probe if the CPU has hardware virtualization: otherwise /dev/kvm is not opened.
func TestProbeKVM(t *testing.T) {
	if virt, err := (Host{}).hardwareVirt(); err != nil || !virt {
		t.Skip("no vmx or svm: nothing to probe")
	}
	dev, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no usable /dev/kvm on this machine (%v): nothing to probe", err)
	}
	defer dev.Close()
	err = probeKVM(dev, probeTimeout)
	t.Logf("probe: %v", err)
	if err != nil {
		t.Errorf("vmx or svm is there, and the probe fails: %v", err)
	}
}

// TestInTime: inTime does not wait for a probe that does not return.
func TestInTime(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	if err := inTime(time.Millisecond, func() error { <-hang; return nil }); err == nil || !strings.Contains(err.Error(), "did not answer within 1ms") {
		t.Error(err)
	}
	if err := inTime(time.Minute, func() error { return os.ErrExist }); err != os.ErrExist {
		t.Error(err)
	}
}

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n"
	v1mount := "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	tests := []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"no cgroup", map[string]string{"proc/meminfo": meminfo}, 8000000 << 10},
		{"v2, limit of the parent", map[string]string{
			"proc/meminfo":                        meminfo,
			"proc/self/cgroup":                    "0::/user/job7\n",
			"proc/self/mountinfo":                 "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/user/memory.max":       "1073741824\n",
			"sys/fs/cgroup/user/memory.current":   "536870912\n",
			"sys/fs/cgroup/user/memory.stat":      "anon 1\ninactive_file 268435456\n",
			"sys/fs/cgroup/user/job7/memory.max":  "max\n",
			"sys/fs/cgroup/user/job7/memory.high": "max\n",
		}, 1<<30 - 256<<20},
		{"v2, memory.high is lower", map[string]string{
			"proc/meminfo":                   meminfo,
			"proc/self/cgroup":               "0::/j\n",
			"proc/self/mountinfo":            "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/j/memory.max":     "1073741824\n",
			"sys/fs/cgroup/j/memory.high":    "100000\n",
			"sys/fs/cgroup/j/memory.current": "200000\n",
		}, 0},
		{"v1 beside v2", map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/cgroup":    "4:memory:/p/c\n0::/\n",
			"proc/self/mountinfo": v1mount,
			"sys/fs/cgroup/memory/p/c/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/p/c/memory.usage_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     "5\n",
		}, 1 << 30},
		{"container: the mount shows a part", map[string]string{
			"proc/meminfo":                 meminfo,
			"proc/self/cgroup":             "0::/../outside\n",
			"proc/self/mountinfo":          "30 23 0:27 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory.max":     "4096\n",
			"sys/fs/cgroup/memory.current": "96\n",
		}, 4000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tree(t, tt.files).AvailableMemory()
			if err != nil || got != tt.want {
				t.Errorf("got %d, %v; want %d", got, err, tt.want)
			}
		})
	}
	if _, err := tree(t, nil).AvailableMemory(); err == nil {
		t.Error("no /proc/meminfo: no error")
	}
	if n, err := AvailableMemory(); err != nil || n == 0 {
		t.Errorf("this machine: %d, %v", n, err)
	}
}

func TestUsableCPUs(t *testing.T) {
	h := tree(t, map[string]string{
		"proc/self/status":                      "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n",
		"sys/devices/system/cpu/online":         "0-3,6\n",
		"proc/self/cgroup":                      "0::/a\n",
		"proc/self/mountinfo":                   "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/a/cpuset.cpus.effective": "1-6\n",
	})
	got, err := h.UsableCPUs()
	if err != nil || len(got) != 4 || got[0] != 1 || got[3] != 6 {
		t.Errorf("got %v, %v; want [1 2 3 6]", got, err)
	}
	if cpus, err := UsableCPUs(); err != nil || len(cpus) == 0 {
		t.Errorf("this machine: %v, %v", cpus, err)
	}
	bad := tree(t, map[string]string{"proc/self/status": "Cpus_allowed_list:\t3-1\n"})
	if _, err := bad.UsableCPUs(); err == nil {
		t.Error("3-1: no error")
	}
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"0", "0-3,8,10-11", "", "-", "0-", "5-1", "0-99999999999999999999", "1,1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := parseCPUList(s)
		if err != nil {
			return
		}
		for i, c := range cpus {
			if c < 0 || c > maxCPU || i > 0 && c <= cpus[i-1] {
				t.Fatalf("%q: %v", s, cpus)
			}
		}
	})
}

func TestTSC(t *testing.T) {
	flags, err := (Host{}).cpuFlags()
	if err != nil {
		t.Fatal(err)
	}
	khz, ok := TSCKHz()
	if !flags["constant_tsc"] || !flags["nonstop_tsc"] {
		if ok {
			t.Error("a counter that is not constant was measured")
		}
		return
	}
	t.Logf("%d kHz, %v", khz, ok)
	if ok && (khz < 100_000 || khz > 20_000_000) {
		t.Errorf("%d kHz is not a CPU's rate", khz)
	}
	plain := tree(t, map[string]string{"proc/cpuinfo": "flags : tsc\n"})
	if _, ok := plain.measureTSC(); ok {
		t.Error("measured without constant_tsc")
	}
}
