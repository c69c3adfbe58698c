package device

import (
	"context"
	"fmt"
	"strings"
	"time"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/pattern"
)

// A function is lent to a job of a batch system: as by Bind, in a transaction that names the
// job, so that its end can be found by the job alone. What an administrator bound by Bind
// stays bound when the job gives it back.

// lentTo is the name of a job's transactions, without the function.
const lentTo = "lent-"

var jobName = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`)

// Lend hands a function to a user for a job, called by letters, digits, '.', '_' and '-'. What an
// earlier job did not give back of it is undone first: whoever lends knows that it has ended.
// When it fails or ctx ends, all is as it was.
func (h *Host) Lend(ctx context.Context, job, at string, uid, gid int) error {
	if !jobName().MatchString(job) {
		return fmt.Errorf("%.70q cannot name a job", job)
	}
	if _, err := h.giveBack(func(j, of string) bool { return of == at }); err != nil {
		return err
	}
	return h.bind(ctx, lentTo+job+":"+at, at, uid, gid)
}

// Return takes back what was lent to the jobs that ended says yes to. It waits a moment for the
// kernel, which closes what a VM had open after its end. It gives what it undid.
func (h *Host) Return(ended func(job string) bool) ([]journal.Change, error) {
	return h.giveBack(func(job, _ string) bool { return ended(job) })
}

// stillOpen bounds how long a killed QEMU may hold a function.
const stillOpen = 5 * time.Second

// giveBack undoes the lendings that want chooses.
func (h *Host) giveBack(want func(job, at string) bool) ([]journal.Change, error) {
	if _, err := change.Recover(h.State()); err != nil {
		return nil, err
	}
	list, err := change.List(h.State())
	if err != nil {
		return nil, err
	}
	chosen := map[string]bool{}
	for _, i := range list {
		job, at, ok := lending(i.Name)
		if !ok || !want(job, at) {
			continue
		}
		chosen[i.Name] = true
		for end := time.Now().Add(stillOpen); h.there(at) && h.held(h.read(at)); time.Sleep(poll) {
			if time.Now().After(end) {
				return nil, fmt.Errorf("device %s is in use by %s: end that first", at, h.whoHolds(at))
			}
		}
	}
	if len(chosen) == 0 {
		return nil, nil
	}
	return change.Undo(h.State(), func(name string) bool { return chosen[name] })
}

// lending splits the name of a transaction of Lend.
func lending(name string) (job, at string, ok bool) {
	rest, ok := strings.CutPrefix(name, lentTo)
	if !ok {
		return "", "", false
	}
	job, at, ok = strings.Cut(rest, ":")
	return job, at, ok && address().MatchString(at)
}
