// Package load reads what the VMs of clusters take of this host: from /proc, the region and the cards, without asking a
// VM, and what a VM says of its own interfaces. A reading costs some tens of µs a thread.
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
	// Region is who uses the region that the VM shares; nil: not known, or it has none.
	Region *Region `json:"region,omitempty"`
	// Functions are the host's functions that the VM has, with what their card counted of each.
	Functions []Function `json:"functions,omitempty"`
	// Interfaces are those of the VM, where it was asked.
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Function is a virtual function of a card on this host, and what went over it since it was made, as the card's driver
// counts for the host. Drivers that count nothing leave zeros.
type Function struct {
	Address  string `json:"address"` // on the host: 0000:41:10.0
	Received uint64 `json:"receivedBytes"`
	Sent     uint64 `json:"sentBytes"`
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
	Lines             float64 // that ranks read from the region, a second; negative: not known
	// Bytes a second over the VM's network interfaces, its RDMA devices, and its functions as the host counts them;
	// negative: not known.
	NetIn, NetOut, RDMAIn, RDMAOut, FunctionsIn, FunctionsOut float64
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
	carried := func(sum func(*VM) (in, out uint64, known bool)) (in, out float64) {
		in1, out1, known := sum(v)
		in0, out0, was := sum(earlier)
		if !known || !was {
			return -1, -1
		}
		return second(&in1, &in0), second(&out1, &out0)
	}
	r := Rate{
		VCPU: share(v.VCPU, earlier.VCPU), Wait: share(v.Wait, earlier.Wait), Other: share(v.Other, earlier.Other),
		Exits: second(v.Exits, earlier.Exits), Read: second(v.ReadBytes, earlier.ReadBytes), Written: second(v.WrittenBytes, earlier.WrittenBytes),
		Lines: -1,
	}
	if v.Region != nil && earlier.Region != nil {
		r.Lines = second(v.Region.Lines, earlier.Region.Lines)
	}
	r.NetIn, r.NetOut = carried(func(v *VM) (uint64, uint64, bool) { return v.Carried(false) })
	r.RDMAIn, r.RDMAOut = carried(func(v *VM) (uint64, uint64, bool) { return v.Carried(true) })
	r.FunctionsIn, r.FunctionsOut = carried((*VM).overFunctions)
	return r
}

// overFunctions are the bytes that went over the VM's functions, and whether it has any.
func (v *VM) overFunctions() (received, sent uint64, any bool) {
	for _, f := range v.Functions {
		received, sent, any = received+f.Received, sent+f.Sent, true
	}
	return received, sent, any
}
