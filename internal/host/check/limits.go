package check

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

var limitRows = []Row{
	selinuxRow,
	usernsRow,
	{
		ID: "limits.memlock", Group: Limits, Title: "locked memory",
		Reads: "Max locked memory in /proc/PID/limits of this process, slurmd, libvirtd and sshd", Wants: "unlimited, soft and hard",
		Why:    "RDMA locks its buffers, and a VM with a VF all of its memory; jobs inherit the limit of the daemon that starts them.",
		Source: "NASA AT5 report, section 4.1 step 6 and section 4.1.1 step 4 (limits.conf: memlock unlimited)",
		Costs:  "VMs with a VF do not start, ibv_reg_mr fails",
		Fix:    "/etc/security/limits.d: '* soft memlock unlimited' and '* hard memlock unlimited'; LimitMEMLOCK=infinity in the daemons' units",
		Needs:  Restart, Profiles: withRDMA,
		look: func(f *facts) finding {
			var items []Item
			for _, p := range f.lockers() {
				item := Item{p.name, OK, p.limit}
				if p.limit != "unlimited" {
					item.Status = Warn
				}
				items = append(items, item)
			}
			return worst(items, found(Unknown, "no limits in the tree"))
		},
		writes: func(f *facts) []Write {
			if !f.live {
				return nil
			}
			var list []Write
			for _, p := range f.lockers() {
				if p.limit != "unlimited" && p.pid != 0 {
					list = append(list, Write{PID: p.pid, Name: p.name, Before: p.limit})
				}
			}
			return list
		},
	},
	{
		ID: "limits.nofile", Group: Limits, Title: "open files of a process",
		Reads: "Max open files in /proc/self/limits, the hard limit", Wants: "524288 or more",
		Why:    "With files: virtiofs, a process holds a descriptor for each file that a VM knows. The agent has the VM forget files before the limit is reached, and it then asks for them anew.",
		Source: "docs/files.md",
		Costs:  "file systems with many files are slower; below 16384 VMs with virtiofs do not start",
		Fix:    "/etc/security/limits.d: '* hard nofile 524288'; LimitNOFILE=524288 in the units of daemons that start jobs",
		Needs:  Restart, Profiles: onHosts,
		look: func(f *facts) finding {
			s, err := f.read("/proc/self/limits")
			if err != nil {
				return found(Unknown, "no limits in the tree")
			}
			_, hard, ok := parseLimit(s, "Max open files")
			n, err := strconv.ParseUint(hard, 10, 64)
			switch {
			case ok && hard == "unlimited":
				return found(OK, "unlimited")
			case !ok || err != nil:
				return found(Unknown, "no limit on open files in /proc/self/limits")
			case n < 524288:
				return found(Warn, "%d", n)
			}
			return found(OK, "%d", n)
		},
	},
	{
		ID: "limits.shm", Group: Limits, Title: "room for regions in shared memory",
		Reads: "size of the file system on /dev/shm in /proc/mounts", Wants: "1 GiB or more",
		Why:    "The region that the VMs of a host share is a file without a name in /dev/shm; Open MPI's own shared memory is there, too.",
		Source: "docs/region.md",
		Costs:  "clusters with a large region do not start",
		Fix:    "mount -o remount,size=50% /dev/shm",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			s, err := f.read("/proc/mounts")
			if err != nil {
				return found(Unknown, "/proc/mounts cannot be read")
			}
			room, there := parseShm(s)
			switch {
			case !there:
				return found(Fail, "no tmpfs on /dev/shm")
			case room == 0:
				return found(OK, "half of memory (the default)")
			case room < 1<<30:
				return found(Warn, "%s", words.Bytes(room))
			}
			return found(OK, "%s", words.Bytes(room))
		},
	},
	{
		ID: "limits.cgroup", Own: true, Group: Limits, Title: "what a cgroup leaves of this host",
		Reads: "/proc/self/cgroup and the cgroup's CPUs, memory and CPU quota", Wants: "no CPU quota",
		Why:    "A quota stops vCPUs in the middle of an exchange, for milliseconds.",
		Source: "kernel documentation: admin-guide/cgroup-v2 (cpu.max)",
		Costs:  "stalls of up to 100 ms when the quota is used up",
		Fix:    "give jobs CPUs (cpuset), not shares of them: cpu.max = max",
		Needs:  Other, Profiles: anywhere,
		look: func(f *facts) finding {
			h := f.host()
			if h == nil {
				return found(Unknown, "%v", f.topoErr)
			}
			if h.Limits.CPUQuota > 0 {
				return found(Warn, "quota of %.1f CPUs", h.Limits.CPUQuota)
			}
			if len(h.Limits.From) > 0 {
				return found(OK, "%s", printable(strings.Join(h.Limits.From, "; ")))
			}
			return found(OK, "no limits")
		},
	},
}

// locker is a process whose limit on locked memory is inherited by jobs.
type locker struct {
	name  string
	pid   int    // 0: this process
	limit string // unlimited, or the soft limit in words
}

// lockers returns this process and the daemons that start jobs.
func (f *facts) lockers() []locker {
	var list []locker
	add := func(name, path string, pid int) {
		s, err := f.read(path)
		if err != nil {
			return
		}
		if soft, hard, ok := parseLimit(s, "Max locked memory"); ok {
			limit := soft
			if soft == "unlimited" && hard != "unlimited" {
				limit = "hard limit " + hard
			}
			if n, err := strconv.ParseUint(limit, 10, 64); err == nil {
				limit = words.Bytes(n)
			}
			list = append(list, locker{name, pid, limit})
		}
	}
	add("this process", "/proc/self/limits", 0)
	for _, name := range []string{"slurmd", "libvirtd", "virtqemud", "sshd"} {
		for _, pid := range f.processes(name) {
			if f.ofRoot(pid) {
				add(name, fmt.Sprintf("/proc/%d/limits", pid), pid)
				break // the first is the daemon, others are its children
			}
		}
	}
	return list
}

// ofRoot reports whether all IDs of a process are root's, because any user may name a program slurmd. A captured tree
// need not contain them.
func (f *facts) ofRoot(pid int) bool {
	s, err := f.read(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	for _, line := range strings.Split(s, "\n") {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Join(strings.Fields(ids), " ") == "0 0 0 0"
		}
	}
	return false
}

// parseLimit parses a soft and a hard limit, called name, of a process's limits (proc(5), /proc/PID/limits).
func parseLimit(s, name string) (soft, hard string, ok bool) {
	for _, line := range strings.Split(s, "\n") {
		rest, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		f := strings.Fields(printable(rest))
		if len(f) < 2 {
			return "", "", false
		}
		return f[0], f[1], true
	}
	return "", "", false
}

// parseShm finds the tmpfs on /dev/shm in /proc/mounts and its size in bytes, 0 if none is set.
func parseShm(mounts string) (size uint64, ok bool) {
	for _, line := range strings.Split(mounts, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != "/dev/shm" || f[2] != "tmpfs" {
			continue
		}
		size, ok = 0, true // the last mount is on top
		for _, o := range strings.Split(f[3], ",") {
			if v, found := strings.CutPrefix(o, "size="); found {
				if kib, found := strings.CutSuffix(v, "k"); found {
					if n, err := strconv.ParseUint(kib, 10, 52); err == nil {
						size = n << 10
					}
				}
			}
		}
	}
	return size, ok
}
