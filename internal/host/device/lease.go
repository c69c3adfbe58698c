package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
)

// A function is leased to a job of a batch system like with Bind, in a transaction that names the job, so that the
// job's end can find it. A function that an administrator bound by Bind stays bound when the job returns it.

// leasePrefix begins the names of jobs' transactions.
const leasePrefix = "lease-"

var jobName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`)

// Lease gives a function to a user for a job, whose name has letters, digits, '.', '_' and '-'. It first undoes what
// an earlier job has not returned; runs reports whether another job still runs (nil: none does). A *HeldError reports
// that such a job has the function, or that a process has it open. If it fails or ctx ends, everything is restored.
func (h *Host) Lease(ctx context.Context, job, at string, uid, gid int, runs func(job string) bool) error {
	if !jobName().MatchString(job) {
		return fmt.Errorf("%.70q cannot name a job", job)
	}
	other := ""
	if _, err := h.giveBack(func(j, of string) bool {
		if of == at && j != job && runs != nil && runs(j) {
			other = j
			return false
		}
		return of == at
	}); err != nil {
		return err
	}
	if other != "" {
		return &HeldError{at, "job " + other}
	}
	if who := h.keptBy(at); who != "" {
		return &HeldError{at, who}
	}
	return h.bind(ctx, leasePrefix+job+":"+at, at, uid, gid, h.reset)
}

// HeldError reports that a function cannot be leased or taken back now, because a process has it open.
type HeldError struct{ Address, Holder string }

func (e *HeldError) Error() string {
	return fmt.Sprintf("device %s is in use by %s: end that first", e.Address, e.Holder)
}

// reset resets a function, so that its next user finds no data of the last one: vfio-pci does so when the last
// descriptor is closed, if it can. A function for which the kernel knows no reset is left unchanged.
func (h *Host) reset(at string) error {
	file := h.dev(at, "reset")
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := h.write(file, "1"); err != nil {
		return fmt.Errorf("device %s: reset: %w", at, reason(err))
	}
	return nil
}

// Return takes back the functions leased to the jobs for which ended returns true. It waits a moment for the kernel,
// which closes a VM's files after its end. A function that is still open is set aside: its group's file becomes
// root's again, a later call does the rest, and the error contains a *HeldError. It returns the changes that it
// undid.
func (h *Host) Return(ended func(job string) bool) ([]journal.Change, error) {
	return h.giveBack(func(job, _ string) bool { return ended(job) })
}

// stillOpen bounds how long a killed QEMU may hold a function.
const stillOpen = 5 * time.Second

// giveBack undoes the leases selected by want.
func (h *Host) giveBack(want func(job, at string) bool) ([]journal.Change, error) {
	if _, err := change.Recover(h.State()); err != nil {
		return nil, err
	}
	list, err := change.List(h.State())
	if err != nil {
		return nil, err
	}
	chosen := map[string]bool{}
	var kept []error
	end := time.Now().Add(stillOpen)
	for _, i := range list {
		job, at, ok := leaseOf(i.Name)
		if !ok || !want(job, at) {
			continue
		}
		who := h.keptBy(at)
		for ; who != "" && time.Now().Before(end); who = h.keptBy(at) {
			time.Sleep(10 * poll)
		}
		if who != "" {
			kept = append(kept, &HeldError{at, who}, h.give(h.read(at).VFIO, 0, 0, 0o600))
			continue
		}
		chosen[i.Name] = true
	}
	if len(chosen) == 0 {
		return nil, errors.Join(kept...)
	}
	did, err := change.Undo(h.State(), func(name string) bool { return chosen[name] })
	return did, errors.Join(append(kept, err)...)
}

// leaseOf splits the name of a transaction of Lease.
func leaseOf(name string) (job, at string, ok bool) {
	rest, ok := strings.CutPrefix(name, leasePrefix)
	if !ok {
		rest, ok = strings.CutPrefix(name, "lent-") // written by an older nearmetal; until 0.2.0
	}
	if !ok {
		return "", "", false
	}
	job, at, ok = strings.Cut(rest, ":")
	return job, at, ok && address().MatchString(at)
}
