// Package load reads the resources that the VMs of clusters use on this host: from /proc, the region and the cards,
// without involving the VM, and the counters that a VM reports of its own interfaces. A reading costs some tens of µs
// per thread.
package load

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// VM is a VM's use of its host since its start. Times are sums over all threads of a kind.
type VM struct {
	Cluster string `json:"cluster"`
	Name    string `json:"vm"`
	State   string `json:"state"`
	VCPUs   int    `json:"vcpus"`
	// VCPU is how long its vCPUs ran, and Wait how long they were runnable but waited while other threads had their
	// CPUs. Other is how long QEMU's other threads ran.
	VCPU  time.Duration `json:"vcpuNs"`
	Wait  time.Duration `json:"waitNs"`
	Other time.Duration `json:"otherNs"`
	// ResidentBytes is the used memory in ordinary pages, HugeBytes that in huge pages.
	ResidentBytes uint64 `json:"residentBytes"`
	HugeBytes     uint64 `json:"hugeBytes"`
	// Exits counts its vCPUs' exits from the guest, if KVM runs it and its statistics are readable; nil: unknown.
	Exits *uint64 `json:"exits,omitempty"`
	// ReadBytes and WrittenBytes are the bytes that QEMU read and wrote by system calls: mainly those of shared file
	// systems, and the part of network and console traffic that passes through QEMU. nil: unknown.
	ReadBytes    *uint64 `json:"readBytes,omitempty"`
	WrittenBytes *uint64 `json:"writtenBytes,omitempty"`
	// Nodes is the used memory by NUMA node of the host, and RegionBytes the part of the region that the VM has
	// touched. Only ReadNodes sets them.
	Nodes       []Node  `json:"nodes,omitempty"`
	RegionBytes *uint64 `json:"regionBytes,omitempty"`
	// Region describes the users of the VM's region; nil: unknown, or it has none.
	Region *Region `json:"region,omitempty"`
	// Functions are the host's functions that the VM has, with the counters that their card keeps for each.
	Functions []Function `json:"functions,omitempty"`
	// Interfaces are the interfaces that the VM reported, if it was asked.
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Function is a virtual function of a card on this host, with the bytes that it carried since it was made, as counted
// by the card's driver on the host. Drivers that do not count leave zeros.
type Function struct {
	Address  string `json:"address"` // on the host: 0000:41:10.0
	Received uint64 `json:"receivedBytes"`
	Sent     uint64 `json:"sentBytes"`
}

// Node is used memory on a NUMA node of the host.
type Node struct {
	Node  int    `json:"node"`
	Bytes uint64 `json:"bytes"`
}

// Read reads the resources that process pid uses from proc and debugfs below root ("/"). If the process has ended, ok
// is false.
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
		if bytes.HasPrefix(read(filepath.Join(task, "comm")), []byte("CPU ")) { // QEMU's name for vCPU threads
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

// fileMax bounds the bytes that are read of a file.
const fileMax = 16 << 10

// read returns the beginning of a file, or nil if it cannot be read.
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

// number parses a decimal number, and returns 0 if b is not one.
func number(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}

// Rate is a VM's use of resources between two readings.
type Rate struct {
	// VCPU, Wait and Other are in CPUs: 2.0 is the time of two.
	VCPU, Wait, Other float64
	Exits             float64 // per second; negative: unknown
	Read, Written     float64 // bytes per second; negative: unknown
	Lines             float64 // that ranks read from the region, per second; negative: unknown
	// Bytes per second over the VM's network interfaces, its RDMA devices, and its functions as the host counts them;
	// negative: unknown.
	NetIn, NetOut, RDMAIn, RDMAOut, FunctionsIn, FunctionsOut float64
}

// Since returns the rates between an earlier reading and v, which are passed apart.
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

// overFunctions returns the bytes received and sent by the VM's functions, and whether it has any.
func (v *VM) overFunctions() (received, sent uint64, any bool) {
	for _, f := range v.Functions {
		received, sent, any = received+f.Received, sent+f.Sent, true
	}
	return received, sent, any
}
