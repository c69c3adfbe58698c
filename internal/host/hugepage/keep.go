package hugepage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/words"
)

// Keep keeps pages for a job, whose folder is there, on the host below root ("" for this one). What
// the job has already, and what those have whose folders are gone, is given back first. When it
// fails all is as it was: the error says which node is short, and by how much.
func Keep(root string, job Job, needs []Need) error {
	if !jobName().MatchString(job.Name) || !filepath.IsAbs(job.State) {
		return fmt.Errorf("%.70q in %.200q cannot name a job", job.Name, job.State)
	}
	if err := change.Prepare(dirOf(root)); err != nil {
		return err
	}
	unlock, err := lock(dirOf(root))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := giveBack(root, job); err != nil {
		return err
	}
	list, err := change.List(dirOf(root))
	if err != nil {
		return err
	}
	t, err := change.Begin(dirOf(root), job.transaction())
	if err != nil {
		return err
	}
	if err = keep(t, root, job, needs, list); err != nil {
		_, bad := t.Rollback()
		return errors.Join(err, bad)
	}
	return t.Commit()
}

// keep makes what is missing of the needs beside what the transactions of list have.
func keep(t *change.Transaction, root string, job Job, needs []Need, list []change.Info) error {
	var pools []pool
	var changes []journal.Change
	for _, n := range needs {
		p := poolOf(root, n)
		before, err := p.standing()
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("node %d of this host has no huge pages of %s", n.Node, words.Bytes(n.PageBytes))
		}
		free, bad := p.count("free_hugepages")
		if err := errors.Join(err, bad); err != nil {
			return err
		}
		pages, made := p.promised(list)
		own := max(before-made-(pages-made), 0) // the administrator's, less those that jobs have
		if unknown(list) {
			own = 0 // and what another has is not known
		}
		take := min(n.Pages, own, max(free-pages, 0))
		pools = append(pools, p)
		changes = append(changes, p.change(job, before, n.Pages, n.Pages-take))
	}
	for _, c := range changes {
		if err := t.Record(c); err != nil {
			return err
		}
	}
	for i, p := range pools {
		made := number(changes[i], "made")
		if made == 0 {
			continue
		}
		before := number(changes[i], "before")
		if err := journal.WriteValue(p.file("nr_hugepages"), strconv.Itoa(before+made)); err != nil {
			return err
		}
		t.Step()
		now, err := p.standing()
		if err != nil {
			return err
		}
		if now < before+made {
			return fmt.Errorf("node %d of this host can make %d of the %d huge pages of %s that are missing: its memory is in use or in pieces",
				needs[i].Node, max(now-before, 0), made, words.Bytes(needs[i].PageBytes))
		}
	}
	return nil
}

// unknown says whether a job has pages of which no journal says how many: its own cannot be read.
func unknown(list []change.Info) bool {
	for _, i := range list {
		if i.Bad != nil && strings.HasPrefix(i.Name, keptFor) {
			return true
		}
	}
	return false
}

// Return frees what was kept for a job, and what the jobs have whose folders are gone: a host's
// that was booted, a test's that was killed. It ends what a killed Keep or Return left half done,
// may be called twice, with Job{} for none, and returns what it undid.
func Return(root string, job Job) ([]journal.Change, error) {
	// Where no job ever had pages there is nothing to lock.
	if list, err := change.List(dirOf(root)); err != nil || len(list) == 0 {
		return nil, err
	}
	unlock, err := lock(dirOf(root))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return giveBack(root, job)
}

func giveBack(root string, job Job) ([]journal.Change, error) {
	if _, err := change.Recover(dirOf(root)); err != nil {
		return nil, err
	}
	list, err := change.List(dirOf(root))
	if err != nil {
		return nil, err
	}
	over := map[string]bool{job.transaction(): true}
	for _, i := range list {
		kept := false
		for _, c := range i.Changes {
			kept = kept || c.Kind == kind
		}
		if strings.HasPrefix(i.Name, keptFor) && i.Bad == nil && !kept {
			over[i.Name] = true // settled, by one that was killed then
		}
		for _, c := range i.Changes {
			if c.Kind != kind {
				continue
			}
			if _, err := os.Lstat(filepath.Join(c.Args["state"], c.Args["job"])); errors.Is(err, fs.ErrNotExist) {
				over[i.Name] = true
			}
		}
	}
	return change.UndoSettled(dirOf(root), func(name string) bool { return over[name] }, settle)
}

// settle says what the pools of a committed transaction are to become: what they are now, less what was
// made for the job. It takes the place of the job's changes in the journal at once, before any is written.
func settle(j *journal.Journal) error {
	var become []journal.Change
	kept := false
	for _, c := range j.Changes() {
		kept = kept || c.Kind == kind
		if c.Kind != kind || !current(c) || number(c, "made") == 0 {
			continue
		}
		p := pool{c.Args["root"], filepath.Dir(c.Args["path"])}
		now, err := p.standing()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		become = append(become, p.back(now, max(now-number(c, "made"), 0)))
	}
	if !kept {
		return nil // it was said before a kill
	}
	// A batch that was cut short by a power cut left its beginning: that is said anew.
	return j.Settle(func(c journal.Change) bool { return c.Kind == kind || c.Kind == kindBack }, become)
}

func dirOf(root string) string { return filepath.Join(root+"/", change.Dir) }
