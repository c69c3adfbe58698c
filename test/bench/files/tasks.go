package main

import "fmt"

// task is something that is timed.
type task struct {
	part   string
	name   string
	cold   bool // with the VM's caches dropped before
	script func(p *place) string
}

// Names of figures that goals are set for.
const (
	importsCold  = "import numpy, mpi4py, cold"
	importsWarm  = "import numpy, mpi4py, warm"
	importsCold8 = "the same on 8 ranks at once, cold"
	importsWarm8 = "the same on 8 ranks at once, warm"
	bootToReady  = "boot to ready"
)

func (t task) fits(p *place) bool { return !t.cold || p.caches }

func (t task) prepare(p *place) string {
	if t.cold {
		return "sync; echo 3 >/proc/sys/vm/drop_caches"
	}
	return ""
}

// tasks are in their order: what is warm was read by the one before.
func (b *bench) tasks() []task {
	both := func(part, cold, warm string, script func(p *place) string) []task {
		return []task{{part, cold, true, script}, {part, warm, false, script}}
	}
	var all []task
	all = append(all, both("small", "1,000 small files read, cold", "1,000 small files read, warm",
		func(p *place) string { return "cat " + p.small + "/*" })...)
	all = append(all, both("small", "find over Python's modules, cold", "find over Python's modules, warm",
		func(p *place) string { return "find " + p.modules + " -printf '%s\\n'" })...)
	one := func(p *place) string { return p.python + " -c 'import numpy, mpi4py'" }
	all = append(all, both("imports", importsCold, importsWarm, one)...)
	all = append(all, both("ranks", importsCold8, importsWarm8, func(p *place) string {
		return fmt.Sprintf("for i in $(seq %d); do %s & list=\"$list $!\"; done; for i in $list; do wait $i; done", ranks, one(p))
	})...)
	all = append(all,
		task{"large", fmt.Sprintf("%d MiB written, flushed", b.mib), false, func(p *place) string {
			return fmt.Sprintf("dd if=/dev/zero of=%s/file bs=1M count=%d conv=fsync status=none", p.share, b.mib)
		}},
		task{"large", fmt.Sprintf("%d MiB read, cold", b.mib), true, func(p *place) string { return "cat " + p.share + "/file" }},
		task{"large", fmt.Sprintf("%d MiB read, again", b.mib), false, func(p *place) string { return "cat " + p.share + "/file" }},
	)
	return all
}
