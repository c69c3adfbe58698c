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

// Keep reserves pages for a job, whose directory exists, on the host below root ("" for this one). It first returns
// the job's existing pages, and those of jobs whose directories no longer exist. If it fails everything is restored;
// the error names the node that is short, and by how much.
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

// keep makes the pages that the needs lack in addition to those of the transactions in list.
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
			own = 0 // it is not known which pages another job has
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

// unknown reports whether a job's pages are not known because its journal cannot be read.
func unknown(list []change.Info) bool {
	for _, i := range list {
		if i.Bad != nil && strings.HasPrefix(i.Name, keptFor) {
			return true
		}
	}
	return false
}

// Return frees the pages of a job, and those of jobs whose directories no longer exist: after a reboot, or of a
// killed test. It finishes a Keep or Return that was killed, may be called twice, with Job{} for no job, and returns
// the changes that it undid.
func Return(root string, job Job) ([]journal.Change, error) {
	// If no job ever had pages no lock is needed.
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
			over[i.Name] = true // settled by a process that was then killed
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

// settle determines the new counts of a committed transaction's pools: the current ones, less the pages made for the
// job. They replace the job's changes in the journal at once, before any is written.
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
		return nil // recorded before a kill
	}
	// A batch that a power cut interrupted left its beginning, which is written again.
	return j.Settle(func(c journal.Change) bool { return c.Kind == kind || c.Kind == kindBack }, become)
}

func dirOf(root string) string { return filepath.Join(root+"/", change.Dir) }
