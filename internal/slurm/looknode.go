package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/slurm/conf"
	"nearmetal/internal/words"
)

// lookMemlock checks how much memory a job's processes may lock: slurmd's own limit, unless the limit of the
// submitting shell is propagated with the job (PropagateResourceLimits, slurm.conf(5)). Only VMs with VFs lock their
// memory; without VFs a limit does not prevent booting.
func lookMemlock(s *Site) Finding {
	short := failf
	if s.Offer == nil || len(s.Offer.VFs) == 0 {
		short = func(format string, args ...any) Finding {
			return warnf(format+"; this host has no VFs yet", args...)
		}
	}
	except, where := s.value("PropagateResourceLimitsExcept", "")
	only, onlyWhere := s.value("PropagateResourceLimits", "")
	propagated := !has(except, "MEMLOCK") && !has(except, "ALL")
	if only != "" {
		propagated, where = has(only, "ALL") || has(only, "MEMLOCK"), onlyWhere
	}
	if propagated {
		return short("the submitting shell's limit goes with the job").at(where).
			add(s.Conf.File, "PropagateResourceLimitsExcept="+with(except, "MEMLOCK")).
			run("systemctl edit slurmd    # [Service] LimitMEMLOCK=infinity")
	}
	limit, ok := s.slurmdMemlock()
	switch {
	case !ok && s.root != "/":
		return unknownf("not propagated; the limit of that host's slurmd cannot be seen from here").at(where)
	case !ok:
		return unknownf("not propagated; slurmd does not run here, so its own limit is not known").at(where)
	case limit != "unlimited":
		return short("slurmd may lock %s", bytesOf(limit)).at(where).run("systemctl edit slurmd    # [Service] LimitMEMLOCK=infinity")
	}
	return okf("slurmd's, unlimited").at(where)
}

// bytesOf formats a number of bytes for a person; other text is returned unchanged.
func bytesOf(text string) string {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return words.Bytes(n)
	}
	return text
}

// slurmdMemlock returns the limit (bytes, or "unlimited") of a slurmd that runs here.
func (s *Site) slurmdMemlock() (string, bool) {
	dirs, _ := filepath.Glob(s.path("/proc") + "/[0-9]*")
	for _, dir := range dirs {
		if _, err := strconv.Atoi(filepath.Base(dir)); err != nil {
			continue
		}
		if comm, err := os.ReadFile(dir + "/comm"); err != nil || strings.TrimSpace(string(comm)) != "slurmd" {
			continue
		}
		text, err := os.ReadFile(dir + "/limits")
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
				if limits := strings.Fields(rest); len(limits) > 0 {
					return limits[0], true
				}
			}
		}
	}
	return "", false
}

func lookMpi(s *Site) Finding {
	v, where := s.value("MpiDefault", "none")
	if strings.EqualFold(v, "none") {
		return warnf("MpiDefault=none: each srun has to say --mpi=pmi2 (MPICH, Intel MPI) or --mpi=pmix (Open MPI)").at(where).
			add(s.Conf.File, "MpiDefault=pmix")
	}
	return okf("%s", v).at(where)
}

// lookFences checks for PMIx fences that wait only for a node's own ranks: those with the tree algorithm, in a step
// of fewer nodes than TreeWidth (docs/slurm.md). Without the PMIx plugin, slurmd would not know the key.
func lookFences(s *Site) Finding {
	nodes := 0
	for _, l := range s.Conf.Records("NodeName") {
		if list := l.Pairs[0].Value; !strings.EqualFold(list, "DEFAULT") {
			names, _ := conf.Expand(list) // findNode has expanded it before without an error
			nodes += len(names)
		}
	}
	file := filepath.Join(filepath.Dir(s.Conf.File), "mpi.conf")
	if s.MPI != nil {
		if v, l, _ := s.MPI.Last("PMIxCollFence"); strings.EqualFold(v, "ring") {
			return okf("PMIxCollFence=%s", v).at(l.Where())
		}
	}
	plugins, _ := filepath.Glob(s.path(filepath.Join(s.pluginDir(), "mpi_pmix*.so")))
	if nodes == 1 || len(plugins) == 0 && s.shows(s.pluginDir()) {
		return okf("no PMIx over nodes")
	}
	// No step over several nodes has fewer nodes than these.
	if v, where := s.value("TreeWidth", ""); v == "1" || v == "2" {
		return okf("TreeWidth=%s", v).at(where)
	}
	if len(plugins) == 0 {
		return unknownf("the host's files are not here to look for PMIx's plugin in %s", s.pluginDir())
	}
	return warnf("in steps without VMs PMIx's fences wait for the ranks of their own node only").add(file, "PMIxCollFence=ring")
}

func lookAccounting(s *Site) Finding {
	v, where := s.value("JobAcctGatherType", "jobacct_gather/none")
	// jobacct_gather/linux counts only descendants of the step's own process, which VMs are not.
	if !strings.HasSuffix(strings.ToLower(v), "/cgroup") {
		return warnf("JobAcctGatherType=%s", v).at(where).add(s.Conf.File, "JobAcctGatherType=jobacct_gather/cgroup")
	}
	return okf("%s", v).at(where)
}

func lookKVM(s *Site) Finding {
	missing := failf
	for _, l := range s.Stack {
		if filepath.Base(l.Path) == Plugin && slices.Contains(l.Args, "accel=tcg") {
			missing = warnf // the site has chosen emulation
		}
	}
	st, err := os.Stat(s.path("/dev/kvm"))
	if err != nil && !s.shows("/dev/kvm") {
		return unknownf("the host's /dev is not here to look for kvm")
	}
	if err != nil {
		return missing("there is no /dev/kvm here: VMs are emulated").run("modprobe kvm_intel    # or kvm_amd; nearmetal check says more")
	}
	text, _ := os.ReadFile(s.path("/proc/cpuinfo"))
	virtual := false
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "flags") {
			for _, flag := range strings.Fields(line) {
				virtual = virtual || flag == "vmx" || flag == "svm"
			}
			break
		}
	}
	if !virtual {
		return missing("the CPU has neither vmx nor svm: VMs are emulated").run("nearmetal check --only kvm")
	}
	if st.Mode().Perm()&0o006 != 0o006 {
		return warnf("/dev/kvm is mode %04o: users who are not in its group cannot start VMs", st.Mode().Perm()).
			run(`echo 'KERNEL=="kvm", MODE="0666"' >/etc/udev/rules.d/65-kvm.rules && udevadm trigger /dev/kvm`)
	}
	return okf("/dev/kvm, for every user")
}
