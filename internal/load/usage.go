// Package load reads what the VMs of clusters take of this host, from /proc alone: no VM is asked, and a reading
// costs some tens of µs a thread.
package load

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// VM is what a VM has taken of its host since its start. Times are of all threads of a kind together.
type VM struct {
	Cluster string `json:"cluster"`
	Name    string `json:"vm"`
	State   string `json:"state"`
	VCPUs   int    `json:"vcpus"`
	// VCPU is how long its vCPUs ran, Wait how long they could have run and did not: other threads had their
	// CPUs. Other is how long QEMU's other threads ran.
	VCPU  time.Duration `json:"vcpuNs"`
	Wait  time.Duration `json:"waitNs"`
	Other time.Duration `json:"otherNs"`
	// ResidentBytes is memory of ordinary pages that is in use, HugeBytes that of huge pages.
	ResidentBytes uint64 `json:"residentBytes"`
	HugeBytes     uint64 `json:"hugeBytes"`
	// Exits are those of its vCPUs from the guest, where KVM runs it and its statistics may be read; nil: not known.
	Exits *uint64 `json:"exits,omitempty"`
	// ReadBytes and WrittenBytes are what QEMU read and wrote by system calls: of the shared file systems above all,
	// and of what of the network and the console goes through it. nil: not known.
	ReadBytes    *uint64 `json:"readBytes,omitempty"`
	WrittenBytes *uint64 `json:"writtenBytes,omitempty"`
	// Nodes is memory in use by NUMA node of the host, and RegionBytes what of the region the VM has touched, where
	// ReadNodes was asked for them.
	Nodes       []Node  `json:"nodes,omitempty"`
	RegionBytes *uint64 `json:"regionBytes,omitempty"`
}

// Node is memory of a NUMA node of the host.
type Node struct {
	Node  int    `json:"node"`
	Bytes uint64 `json:"bytes"`
}

// Read fills in what the process pid takes, as proc and debugfs below root ("/") say. A process that has ended has
// taken nothing: ok is false.
func (v *VM) Read(root string, pid int) (ok bool) {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	tasks, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return false
	}
	for _, t := range tasks {
		task := filepath.Join(dir, "task", t.Name())
		// run ns, wait ns, time slices (Documentation/scheduler/sched-stats)
		f := bytes.Fields(read(filepath.Join(task, "schedstat")))
		if len(f) < 2 {
			continue
		}
		run, wait := time.Duration(number(f[0])), time.Duration(number(f[1]))
		if bytes.HasPrefix(read(filepath.Join(task, "comm")), []byte("CPU ")) { // as QEMU calls vCPUs' threads
			v.VCPU += run
			v.Wait += wait
		} else {
			v.Other += run
		}
	}
	for _, line := range strings.Split(string(read(filepath.Join(dir, "status"))), "\n") {
		key, value, _ := strings.Cut(line, ":")
		kib := number([]byte(strings.TrimSuffix(strings.TrimSpace(value), " kB")))
		switch key {
		case "VmRSS":
			v.ResidentBytes = kib << 10
		case "HugetlbPages":
			v.HugeBytes = kib << 10
		}
	}
	for _, line := range strings.Split(string(read(filepath.Join(dir, "io"))), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case key == "rchar":
			v.ReadBytes = &n
		case key == "wchar":
			v.WrittenBytes = &n
		}
	}
	if dirs, _ := filepath.Glob(filepath.Join(root, "sys/kernel/debug/kvm", strconv.Itoa(pid)+"-*")); len(dirs) == 1 {
		if b := read(filepath.Join(dirs[0], "exits")); len(b) > 0 {
			n := number(bytes.TrimSpace(b))
			v.Exits = &n
		}
	}
	return true
}

// fileMax bounds what is read of a file, in bytes.
const fileMax = 16 << 10

// read returns the beginning of a file, nil where it cannot be read.
func read(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, fileMax)
	n, _ := f.Read(b)
	return b[:n]
}

// number returns a decimal number, 0 where it is none.
func number(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}

// Rate is what a VM takes, between two readings.
type Rate struct {
	// VCPU, Wait and Other are CPUs: 2.0 is the time of two.
	VCPU, Wait, Other float64
	Exits             float64 // a second; negative: not known
	Read, Written     float64 // bytes a second; negative: not known
}

// Since returns what v took between an earlier reading and now, of which passed lie between.
func (v *VM) Since(earlier *VM, passed time.Duration) Rate {
	share := func(now, then time.Duration) float64 {
		if passed <= 0 || now < then { // another process has the number since
			return 0
		}
		return float64(now-then) / float64(passed)
	}
	second := func(now, then *uint64) float64 {
		if now == nil || then == nil || *now < *then || passed <= 0 {
			return -1
		}
		return float64(*now-*then) / passed.Seconds()
	}
	return Rate{
		VCPU: share(v.VCPU, earlier.VCPU), Wait: share(v.Wait, earlier.Wait), Other: share(v.Other, earlier.Other),
		Exits: second(v.Exits, earlier.Exits), Read: second(v.ReadBytes, earlier.ReadBytes), Written: second(v.WrittenBytes, earlier.WrittenBytes),
	}
}
