package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/job"
	"nearmetal/internal/traffic"
)

// counts reports whether a step counts the messages between its ranks: a warm-up of an MPI program whose messages may
// be sent over nearmetal's provider. Measured repetitions do not count.
func (r *runner) counts(s step) bool {
	v := &r.request.Variants[s.variant]
	return r.request.Traffic && s.rep < 0 && r.exps[s.exp].def.Launch == "mpi" && (v.overProvider() || v.Kind == "vm")
}

// countsDir returns the directory for a step's counts, below its working directory, which VMs share. Files of an
// earlier step are removed; the ranks create it.
func countsDir(dir string) (string, error) {
	dir = filepath.Join(dir, "traffic")
	return dir, os.RemoveAll(dir)
}

// noCarried replaces carried if the counters are not needed.
func noCarried() []traffic.Carried { return nil }

// carried reads the counters of the VMs' interfaces. The function that it returns returns what they carried since,
// nil if ranks can count their messages.
func (m *vms) carried() (since func() []traffic.Carried) {
	rec := m.c.Record()
	if !job.Uncounted(&rec) {
		return noCarried
	}
	before := job.Interfaces(rec.Name)
	return func() []traffic.Carried { return job.Carried(rec.VMs, before, job.Interfaces(rec.Name)) }
}

// noteTraffic records the counts of a step's ranks, replacing those of an earlier one. Unreadable counts are a
// notice, because they are not part of the result. carried is what the VMs' interfaces carried, if their ranks cannot
// count.
func (r *runner) noteTraffic(s step, dir string, carried []traffic.Carried) {
	x, v := &r.exps[s.exp], &r.request.Variants[s.variant]
	list, err := traffic.ReadDir(dir)
	if os.IsNotExist(err) {
		err = nil // no message was sent over the provider
	}
	m := traffic.Of(list)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		r.notice(fmt.Sprintf("%s, %s: what the ranks sent is not kept: %v", x.names[0], v.Label, err))
		return
	}
	if len(m.Ranks) == 0 && len(carried) == 0 {
		return
	}
	if len(m.Ranks) > 0 {
		carried = nil
	}
	if r.vms.c != nil && v.Spec != nil {
		rec := r.vms.c.Record()
		m.Advise(job.Places(&rec))
	} else {
		m.Advise(nil)
	}
	t := record.Traffic{Case: x.names[0], Variant: v.Label, Point: x.points[s.point], Matrix: *m, Carried: carried}
	at := slices.IndexFunc(r.record.Traffic, func(h record.Traffic) bool { return h.Case == t.Case && h.Variant == t.Variant })
	if at < 0 {
		r.record.Traffic = append(r.record.Traffic, t)
	} else {
		r.record.Traffic[at] = t
	}
}
