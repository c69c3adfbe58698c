package check

import (
	"path"
	"slices"
	"strings"
)

// slurmConfig is the content of Slurm's files; keys are in lower case.
type slurmConfig struct {
	dir    string
	conf   map[string]string
	cgroup map[string]string
	plug   string // plugstack.conf
}

// slurmRows check a Slurm node's files. nearmetal slurm doctor reports nearmetal's own part in full.
var slurmRows = []Row{
	slurmRow("slurm.proctrack", "ProctrackType", "processes of a job are tracked by cgroup",
		"proctrack/cgroup", "A VM that leaves its process group is otherwise not found again when the job ends.",
		"VMs that outlive their job", func(v string) Status {
			return in(v, Warn, "proctrack/cgroup")
		}),
	slurmRow("slurm.task", "TaskPlugin", "tasks are bound to their CPUs",
		"task/affinity,task/cgroup", "VMs and ranks stay on the job's own CPUs.",
		"jobs that share cores", func(v string) Status {
			if strings.Contains(v, "task/cgroup") && strings.Contains(v, "task/affinity") {
				return OK
			}
			return Warn
		}),
	slurmRow("slurm.select", "SelectType", "cores and GRES are what is allocated",
		"select/cons_tres", "VFs and region bytes are GRES, and several jobs share a host by cores.",
		"one job a host, no VFs by GRES", func(v string) Status {
			return in(v, Warn, "select/cons_tres")
		}),
	slurmRow("slurm.prolog-flags", "PrologFlags", "the extern step starts with the job",
		"Alloc,Contain,DeferBatch", "VMs boot in the extern step, as the user, before the first task.",
		"VMs boot in the first step instead", func(v string) Status {
			if hasFlag(v, "contain") && hasFlag(v, "alloc") {
				return OK
			}
			return Warn
		}),
	slurmRow("slurm.memlock", "PropagateResourceLimitsExcept", "the limit on locked memory is the node's, not the login host's",
		"MEMLOCK", "srun hands the submitting shell's limits on; a login host's small memlock limit breaks RDMA and VFs.",
		"RDMA that fails in jobs and works over ssh", func(v string) Status {
			if hasFlag(v, "memlock") || hasFlag(v, "all") {
				return OK
			}
			return Warn
		}),
	slurmRow("slurm.gres", "GresTypes", "VFs and regions are GRES",
		"vf,ivshmem", "Slurm then allocates to each job its own VFs and bytes of region.",
		"VFs that two jobs want at once", func(v string) Status {
			if hasFlag(v, "vf") && hasFlag(v, "ivshmem") {
				return OK
			}
			return Warn
		}),
	{
		ID: "slurm.constrain", Group: Slurm, Title: "jobs are kept to their cores, memory and devices",
		Reads: "cgroup.conf", Wants: "ConstrainCores, ConstrainRAMSpace, ConstrainDevices = yes",
		Why:    "A job cannot take another's cores, memory or VF.",
		Source: "Slurm documentation: cgroup.conf", Costs: "jobs that disturb each other; VFs open to every job",
		Fix:   "in cgroup.conf: ConstrainCores=yes, ConstrainRAMSpace=yes, ConstrainDevices=yes; scontrol reconfigure",
		Needs: Restart, Profiles: []Profile{SlurmNode},
		look: func(f *facts) finding {
			c := f.slurmConf()
			if c.dir == "" {
				return noSlurm(f)
			}
			var off []string
			for _, key := range []string{"ConstrainCores", "ConstrainRAMSpace", "ConstrainDevices"} {
				if strings.ToLower(c.cgroup[strings.ToLower(key)]) != "yes" {
					off = append(off, key)
				}
			}
			if len(off) > 0 {
				return found(Warn, "not yes: %s", strings.Join(off, " "))
			}
			return found(OK, "cores, memory and devices")
		},
	},
	{
		ID: "slurm.plugin", Group: Slurm, Title: "nearmetal's plugin",
		Reads: "plugstack.conf", Wants: "a line with spank_nearmetal.so",
		Why:    "It adds the option --vm to srun, sbatch and salloc.",
		Source: "docs/slurm.md", Costs: "no srun --vm",
		Fix:   "nearmetal slurm example prints the line",
		Needs: Restart, Profiles: []Profile{SlurmNode},
		look: func(f *facts) finding {
			c := f.slurmConf()
			if c.dir == "" {
				return noSlurm(f)
			}
			for _, line := range strings.Split(c.plug, "\n") {
				w := strings.Fields(line)
				if len(w) >= 2 && strings.HasSuffix(w[1], "spank_nearmetal.so") && (w[0] == "required" || w[0] == "optional") {
					return found(OK, "%s %s", w[0], printable(w[1]))
				}
			}
			return found(Warn, "not in plugstack.conf")
		},
	},
	{
		ID: "slurm.daemon", Group: Slurm, Title: "slurmd is running",
		Reads: "the processes' names (slurmd)", Wants: "running",
		Why:    "It starts the jobs of this node.",
		Source: "Slurm documentation: slurmd", Costs: "no jobs here",
		Fix:   "systemctl start slurmd",
		Needs: Restart, Profiles: []Profile{SlurmNode},
		look: func(f *facts) finding {
			switch {
			case f.slurmConf().dir == "":
				return noSlurm(f)
			case len(f.numbered("/proc", "")) == 0:
				return found(Unknown, "no processes in the tree")
			case len(f.processes("slurmd")) == 0:
				return found(Warn, "not running")
			}
			return found(OK, "running")
		},
	},
}

// slurmRow returns the row of one key of slurm.conf.
func slurmRow(id, key, title, want, why, costs string, judge func(string) Status) Row {
	return Row{
		ID: id, Group: Slurm, Title: title,
		Reads: key + " in slurm.conf", Wants: want, Why: why, Source: "Slurm documentation: slurm.conf, " + key, Costs: costs,
		Fix: "in slurm.conf: " + key + "=" + want + "; then scontrol reconfigure, or restart slurmctld and slurmd", Needs: Restart,
		Profiles: []Profile{SlurmNode},
		look: func(f *facts) finding {
			c := f.slurmConf()
			if c.dir == "" {
				return noSlurm(f)
			}
			v := c.conf[strings.ToLower(key)]
			shown := v
			if v == "" {
				shown = "not set"
			}
			return found(judge(strings.ToLower(v)), "%s", shown)
		},
	}
}

func in(v string, bad Status, good ...string) Status {
	if slices.Contains(good, v) {
		return OK
	}
	return bad
}

// hasFlag reports whether a comma-separated list has a word, ignoring case.
func hasFlag(list, word string) bool {
	for _, w := range strings.Split(list, ",") {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

func noSlurm(f *facts) finding {
	if f.profile == SlurmNode {
		return found(Fail, "no slurm.conf in /etc/slurm or /etc/slurm-llnl").fixedBy("install slurmd; slurmd --conf-server HOST fetches its configuration to /run/slurm/conf")
	}
	return found(NotApplicable, "no Slurm on this host")
}

// slurmConf reads Slurm's files from the first directory that has slurm.conf: /etc/slurm, /etc/slurm-llnl (old
// Debian), /run/slurm/conf (configless).
func (f *facts) slurmConf() *slurmConfig {
	if f.slurm != nil {
		return f.slurm
	}
	f.slurm = &slurmConfig{}
	for _, dir := range []string{"/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/usr/local/etc"} {
		s, err := f.read(path.Join(dir, "slurm.conf"))
		if err != nil {
			continue
		}
		c := f.slurm
		c.dir, c.conf = dir, parseSlurm(s)
		cg, _ := f.read(path.Join(dir, "cgroup.conf"))
		c.cgroup = parseSlurm(cg)
		c.plug, _ = f.read(path.Join(dir, "plugstack.conf"))
		break
	}
	return f.slurm
}

// parseSlurm parses KEY=VALUE words (slurm.conf(5)): keys ignore case, # starts a comment, a backslash at a line's
// end joins it with the next. Only lines of one word each are read, because lines of nodes and partitions have
// several. The last of equal keys counts.
func parseSlurm(s string) map[string]string {
	conf := map[string]string{}
	s = strings.ReplaceAll(s, "\\\n", "")
	for _, line := range strings.Split(s, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(printable(line))
		if len(words) != 1 || len(conf) > 10000 {
			continue
		}
		if key, value, ok := strings.Cut(words[0], "="); ok {
			conf[strings.ToLower(key)] = strings.Trim(value, `"`)
		}
	}
	return conf
}
