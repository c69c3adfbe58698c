package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"nearmetal/internal/topology"
)

// value returns the value of a key of slurm.conf, or Slurm's default unset if it is missing, and its position.
func (s *Site) value(key, unset string) (value, where string) {
	if v, l, ok := s.Conf.Last(key); ok {
		return v, l.Where()
	}
	return unset, ""
}

// has reports whether a comma-separated list contains a word, ignoring case.
func has(list, word string) bool {
	for _, w := range strings.Split(list, ",") {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

// with returns a list with the missing words appended.
func with(list string, words ...string) string {
	if strings.EqualFold(list, "none") {
		list = ""
	}
	for _, w := range words {
		if !has(list, w) {
			list = strings.TrimPrefix(list+","+w, ",")
		}
	}
	return list
}

func lookVersion(s *Site) Finding {
	switch {
	case s.Major == 0:
		return unknownf("no program of Slurm's could be asked")
	case !s.AtLeast(22, 5):
		return failf("%s", s.VersionText).run("upgrade to Slurm 22.05 or later")
	case !s.AtLeast(23, 11):
		return okf("%s (before 23.11: --multi-prog together with --vm is refused)", s.VersionText)
	}
	return okf("%s", s.VersionText)
}

func lookPlugin(s *Site) Finding {
	for _, l := range s.Stack {
		if filepath.Base(l.Path) != Plugin {
			continue
		}
		where := fmt.Sprintf("%s:%d", l.File, l.Number)
		path := l.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.pluginDir(), path)
		}
		st, err := os.Stat(s.path(path))
		if err != nil && !s.shows(path) {
			return unknownf("%s is named; the host's files are not here to look for it", path).at(where)
		}
		if err != nil {
			return failf("%s is named, but is not there", path).at(where).run("make install    # on every node, from a tree that was built where libslurm-dev is")
		}
		if owner, ok := st.Sys().(*syscall.Stat_t); ok && s.root == "/" && (owner.Uid != 0 || st.Mode()&0o022 != 0) {
			return failf("%s can be written by others than root", path).at(where).run("chown root:root " + path + " && chmod 755 " + path)
		}
		if !l.Required {
			return warnf("optional: where it does not load, --vm is an unknown option").at(where).add(l.File, strings.TrimSpace("required "+l.Path+" "+strings.Join(l.Args, " ")))
		}
		return okf("%s", path).at(where)
	}
	return failf("%s does not name %s", s.StackFile, Plugin).add(s.StackFile, "required "+Plugin+" region_gres="+GresRegion)
}

// pluginDir returns Slurm's directory of plugins: that of slurm.conf, else the first existing one of Debian's and
// RHEL's, else upstream's.
func (s *Site) pluginDir() string {
	if dir, _, ok := s.Conf.Last("PluginDir"); ok {
		return dir
	}
	for _, pattern := range []string{"/usr/lib/*/slurm-wlm", "/usr/lib64/slurm"} {
		if dirs, _ := filepath.Glob(s.path(pattern)); len(dirs) > 0 {
			return "/" + strings.TrimPrefix(strings.TrimPrefix(dirs[0], s.root), "/")
		}
	}
	return "/usr/local/lib/slurm"
}

func lookPrologFlags(s *Site) Finding {
	v, where := s.value("PrologFlags", "")
	// Contain implies Alloc (slurm.conf(5)); the suggestion includes Alloc only to be explicit.
	if has(v, "Contain") && has(v, "DeferBatch") {
		return okf("%s", v).at(where)
	}
	if v == "" {
		v = "(none)"
	}
	return failf("PrologFlags=%s", v).at(where).add(s.Conf.File, "PrologFlags="+with(strings.Trim(v, "()"), "Alloc", "Contain", "DeferBatch"))
}

func lookSelect(s *Site) Finding {
	kind, where := s.value("SelectType", "select/cons_tres")
	params, _ := s.value("SelectTypeParameters", "")
	if !strings.EqualFold(kind, "select/cons_tres") {
		return failf("SelectType=%s", kind).at(where).add(s.Conf.File, "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory")
	}
	if !strings.Contains(strings.ToLower(params), "memory") {
		return warnf("memory is not allocated to jobs (SelectTypeParameters=%s), so VMs take what they ask for", params).
			at(where).add(s.Conf.File, "SelectTypeParameters=CR_Core_Memory")
	}
	return okf("%s, %s", kind, params).at(where)
}

// neededGres returns the GRES that this site needs: VFs only if there are any, or if gres.conf names them.
func (s *Site) neededGres() []string {
	if s.Offer != nil && len(s.Offer.VFs) > 0 {
		return []string{GresVF, GresRegion}
	}
	if s.Gres != nil {
		for _, l := range s.Gres.Lines {
			if v, _ := l.Get("Name"); strings.EqualFold(v, GresVF) {
				return []string{GresVF, GresRegion}
			}
		}
	}
	return []string{GresRegion}
}

func lookGresTypes(s *Site) Finding {
	v, where := s.value("GresTypes", "")
	for _, name := range s.neededGres() {
		if !has(v, name) {
			found := "GresTypes=" + v
			if v == "" {
				found = "no GresTypes"
			}
			return failf("%s", found).at(where).add(s.Conf.File, "GresTypes="+with(v, s.neededGres()...))
		}
	}
	return okf("%s", v).at(where)
}

func lookGresNode(s *Site) Finding {
	if s.NodeLine == nil {
		return unknownf("%s has no NodeName for this host", s.Conf.File)
	}
	v, _ := s.NodeLine.Get("Gres")
	offer := GresRegion + ":SIZE"
	if s.Offer != nil {
		offer = s.Offer.Value()
	}
	for _, name := range s.neededGres() {
		if !strings.Contains(","+strings.ToLower(v), ","+name+":") {
			list := strings.Trim(v+","+offer, ",")
			return failf("NodeName=%s has Gres=%s", s.Node, v).at(s.NodeLine.Where()).add(s.Conf.File, "NodeName="+s.Node+" … Gres="+list)
		}
	}
	return okf("%s", v).at(s.NodeLine.Where())
}

func lookGresConf(s *Site) Finding {
	file := filepath.Join(filepath.Dir(s.Conf.File), "gres.conf")
	lines := []string{"Name=" + GresRegion + " Count=SIZE"}
	if s.Offer != nil {
		lines = s.Offer.Lines()
	}
	if s.Gres == nil {
		return failf("there is no gres.conf").add(file, lines...)
	}
	found := map[string]string{}
	for _, l := range s.Gres.Lines {
		name, _ := l.Get("Name")
		found[strings.ToLower(name)] = l.Where()
		if !strings.EqualFold(name, GresVF) {
			continue
		}
		files, ok := l.Get("File")
		if !ok {
			return failf("a %s line without File= does not say which VF a job has", GresVF).at(l.Where()).add(file, lines...)
		}
		if missing := s.missing(files); missing != "" {
			return failf("%s is not there: slurmd does not start without it", missing).at(l.Where()).
				run("nearmetal device list", "nearmetal device bind VF")
		}
	}
	for _, name := range s.neededGres() {
		if found[name] == "" {
			return failf("no line has Name=%s", name).add(file, lines...)
		}
	}
	return okf("%s", strings.Join(s.neededGres(), ", ")).at(found[GresRegion])
}

// missing returns the first missing file of a File=, or "". It checks only paths below /dev/vfio. If the host's /dev
// is not visible, the existing files are those of the offered VFs.
func (s *Site) missing(files string) string {
	list, ok := strings.CutPrefix(files, "/dev/vfio/")
	if !ok {
		return ""
	}
	groups, err := topology.ParseList(strings.Trim(list, "[]"), 1<<20)
	if err != nil {
		return ""
	}
	for _, g := range groups {
		name := fmt.Sprintf("/dev/vfio/%d", g)
		if !s.shows(name) {
			if s.Offer == nil || slices.ContainsFunc(s.Offer.VFs, func(v VFs) bool { return slices.Contains(v.Groups, g) }) {
				continue
			}
			return name
		}
		if _, err := os.Stat(s.path(name)); err != nil {
			return name
		}
	}
	return ""
}

func lookJobSubmit(s *Site) Finding {
	v, where := s.value("JobSubmitPlugins", "")
	file := filepath.Join(filepath.Dir(s.Conf.File), "job_submit.lua")
	if !has(v, "lua") {
		return warnf("JobSubmitPlugins=%s", v).at(where).
			add(s.Conf.File, "JobSubmitPlugins="+with(v, "lua")).
			run("nearmetal slurm example --file job_submit.lua >" + file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return warnf("%s cannot be read here: it is needed where slurmctld runs", file).at(where)
	}
	if !strings.Contains(string(text), "nearmetal") {
		return warnf("%s does not call nearmetal's part", file).run("nearmetal slurm example --file job_submit.lua")
	}
	return okf("lua, %s", file).at(where)
}

func lookProctrack(s *Site) Finding {
	v, where := s.value("ProctrackType", "proctrack/cgroup")
	switch strings.ToLower(v) {
	case "proctrack/cgroup":
		return okf("%s", v).at(where)
	case "proctrack/linuxproc":
		return warnf("%s: a process that leaves its parent is lost from sight", v).at(where).add(s.Conf.File, "ProctrackType=proctrack/cgroup")
	}
	return failf("%s", v).at(where).add(s.Conf.File, "ProctrackType=proctrack/cgroup")
}

func lookTask(s *Site) Finding {
	v, where := s.value("TaskPlugin", "task/none")
	if has(v, "task/cgroup") || has(v, "cgroup") {
		return okf("%s", v).at(where)
	}
	return warnf("TaskPlugin=%s", v).at(where).add(s.Conf.File, "TaskPlugin=task/affinity,task/cgroup")
}

func lookCgroup(s *Site) Finding {
	file := filepath.Join(filepath.Dir(s.Conf.File), "cgroup.conf")
	var lacking []string
	for _, key := range []string{"ConstrainCores", "ConstrainRAMSpace", "ConstrainDevices"} {
		yes := false
		if s.Cgrp != nil {
			v, _, _ := s.Cgrp.Last(key)
			yes = strings.EqualFold(v, "yes")
		}
		if !yes {
			lacking = append(lacking, key+"=yes")
		}
	}
	if len(lacking) > 0 {
		return warnf("not constrained: %s", strings.ReplaceAll(strings.Join(lacking, ", "), "=yes", "")).add(file, lacking...)
	}
	return okf("cores, memory and devices are constrained").at(s.Cgrp.Lines[0].File)
}
