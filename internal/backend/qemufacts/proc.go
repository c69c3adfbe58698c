package qemufacts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// vma is one mapping of a process, from /proc/PID/smaps and numa_maps.
type vma struct {
	start, end uint64
	shared     bool
	dev        string // major:minor, hexadecimal
	inode      uint64
	path       string
	pageBytes  uint64 // KernelPageSize
	hugeBytes  uint64 // in transparent huge pages
	policy     string
	onNode     map[int]uint64 // bytes
}

// maxVMAs bounds the mappings of a process: the kernel's default is 65,530.
const maxVMAs = 1 << 18

// readMappings reads the mappings of a process.
func readMappings(pid int) ([]vma, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := parseSmaps(f)
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/smaps: %w", pid, err)
	}
	n, err := os.Open(fmt.Sprintf("/proc/%d/numa_maps", pid))
	if errors.Is(err, os.ErrNotExist) {
		return list, nil // a kernel without NUMA has one node and no policies
	}
	if err != nil {
		return nil, err
	}
	defer n.Close()
	if err := parseNumaMaps(n, list); err != nil {
		return nil, fmt.Errorf("/proc/%d/numa_maps: %w", pid, err)
	}
	return list, nil
}

// parseSmaps reads proc_pid_smaps(5), in the order of addresses.
func parseSmaps(r io.Reader) ([]vma, error) {
	var list []vma
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 3 && strings.HasSuffix(f[0], ":") && f[2] == "kB" {
			kb, err := strconv.ParseUint(f[1], 10, 50)
			if err != nil || len(list) == 0 {
				return nil, fmt.Errorf("strange line %.80q", sc.Text())
			}
			v := &list[len(list)-1]
			switch f[0] {
			case "KernelPageSize:":
				v.pageBytes = kb << 10
			case "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:":
				v.hugeBytes += kb << 10
			}
			continue
		}
		if len(f) < 5 || strings.HasSuffix(f[0], ":") {
			continue // VmFlags, ProtectionKey
		}
		lo, hi, ok := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(lo, 16, 64)
		end, err2 := strconv.ParseUint(hi, 16, 64)
		inode, err3 := strconv.ParseUint(f[4], 10, 64)
		if !ok || err1 != nil || err2 != nil || err3 != nil || end < start || len(f[1]) != 4 {
			return nil, fmt.Errorf("strange line %.80q", sc.Text())
		}
		if len(list) == maxVMAs {
			return nil, fmt.Errorf("more than %d mappings", maxVMAs)
		}
		list = append(list, vma{start: start, end: end, shared: f[1][3] == 's', dev: f[3], inode: inode, path: strings.Join(f[5:], " ")})
	}
	return list, sc.Err()
}

// parseNumaMaps parses numa(7)'s numa_maps into mappings of the same process. Ranges that appeared or disappeared
// between the two readings are ignored.
func parseNumaMaps(r io.Reader, list []vma) error {
	sc := bufio.NewScanner(r)
	i := 0
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 2 {
			return fmt.Errorf("strange line %.80q", sc.Text())
		}
		start, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return fmt.Errorf("strange line %.80q", sc.Text())
		}
		for i < len(list) && list[i].start < start {
			i++
		}
		if i == len(list) || list[i].start != start {
			continue
		}
		v := &list[i]
		v.policy = f[1]
		pages, page := map[int]uint64{}, uint64(os.Getpagesize())
		for _, word := range f[2:] {
			key, value, ok := strings.Cut(word, "=")
			if !ok {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 50)
			if err != nil {
				continue // file=…
			}
			if key == "kernelpagesize_kB" {
				page = n << 10
			} else if node, err := strconv.Atoi(strings.TrimPrefix(key, "N")); err == nil && key[0] == 'N' && node >= 0 && node < topology.MaxNodes {
				pages[node] = n
			}
		}
		for node, n := range pages {
			if v.onNode == nil {
				v.onNode = map[int]uint64{}
			}
			v.onNode[node] = n * page
		}
	}
	return sc.Err()
}

// cover returns the part of the mappings within bytes from address on; nil: not all of it is mapped. If the kernel
// has joined a neighbour to the range, the neighbour is also counted.
func cover(list []vma, address, bytes uint64) *backend.Mapping {
	m := &backend.Mapping{OnNode: map[int]uint64{}}
	at := address
	for i := range list {
		v := &list[i]
		if v.end <= at || at >= address+bytes {
			continue
		}
		if v.start > at {
			return nil // a hole
		}
		if at == address {
			m.PageBytes, m.Policy, m.Shared = v.pageBytes, v.policy, v.shared
			if v.inode != 0 {
				m.File = fmt.Sprintf("%s %d", v.dev, v.inode)
			}
		} else if v.policy != m.Policy || v.pageBytes != m.PageBytes {
			m.Policy, m.PageBytes = "several", min(m.PageBytes, v.pageBytes)
		}
		m.Bytes += v.end - v.start
		m.HugeBytes += v.hugeBytes
		for node, n := range v.onNode {
			m.OnNode[node] += n
		}
		at = v.end
	}
	if at < address+bytes {
		return nil
	}
	return m
}

// affinity returns the CPUs on which a thread may run, from its status, which unlike sched_getaffinity does not bound
// the number of CPUs.
func affinity(pid, tid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return topology.ParseList(list, topology.MaxCPUs)
		}
	}
	return nil, fmt.Errorf("/proc/%d/task/%d/status has no Cpus_allowed_list", pid, tid)
}

// threadName returns a thread's name, made harmless because QEMU sets it.
func threadName(pid, tid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	if err != nil {
		return "thread"
	}
	return text.ASCII(string(b))
}

// Threads maps each thread's ID in the process's own pid namespace to its ID on this host. Threads that end during
// the call are left out.
func Threads(pid int) (map[int]int, error) {
	ids, err := threadIDs(pid)
	if err != nil {
		return nil, err
	}
	threads := make(map[int]int, len(ids))
	for _, id := range ids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, id))
		if err != nil {
			continue
		}
		own := id
		for _, line := range strings.Split(string(b), "\n") {
			// NSpid has an ID for each pid namespace, the innermost last.
			if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if f := strings.Fields(list); len(f) > 0 {
					if own, err = strconv.Atoi(f[len(f)-1]); err != nil {
						return nil, fmt.Errorf("/proc/%d/task/%d/status: strange line %.80q", pid, id, line)
					}
				}
				break
			}
		}
		threads[own] = id
	}
	return threads, nil
}

// threadIDs returns the threads of a process.
func threadIDs(pid int) ([]int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, e := range list {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
