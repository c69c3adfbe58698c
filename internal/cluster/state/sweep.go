package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/journal"
	"nearmetal/internal/spec"
)

// Sweep removes what clusters without an owner left: it undoes their journals and removes their directories. It
// returns one line per cluster with what was removed. Every command that starts or lists clusters calls it first.
func Sweep() (lines []string, err error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	b, err := lockBase(base)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		if spec.CheckName(e.Name()) != nil || !e.IsDir() {
			continue
		}
		line, err := sweepOne(filepath.Join(base, e.Name()), e.Name())
		if line != "" {
			lines = append(lines, line)
		}
		errs = append(errs, err)
	}
	return lines, errors.Join(errs...)
}

// sweepOne removes the cluster in dir if it has no owner. The caller holds the lock of the base.
func sweepOne(dir, name string) (string, error) {
	if _, err := os.Stat(dir); err != nil {
		return "", nil
	}
	if live, err := locked(dir); live || err != nil {
		return "", err
	}
	undone, err := undo(dir)
	if err != nil {
		return "", fmt.Errorf("cluster %q, whose owner is gone: %w", name, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	what := "its directory"
	if len(undone) > 0 {
		what = strings.Join(undone, ", ") + " and " + what
	}
	return fmt.Sprintf("removed what cluster %s left when its owner was killed: %s", name, what), nil
}

// undo undoes the journal in dir and returns what it undid, in words.
func undo(dir string) ([]string, error) {
	path := filepath.Join(dir, journalFile)
	if _, err := os.Stat(path); err != nil {
		return nil, nil
	}
	j, err := journal.Open(path)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	defer sweepRefs(j.Changes())()
	changes, err := j.UndoAll()
	var words []string
	for _, c := range changes {
		words = append(words, c.String())
	}
	return words, err
}
