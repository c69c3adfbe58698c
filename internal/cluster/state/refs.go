package state

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/journal"
)

// A cluster's journal holds a Ref of each object that its backend has created. Undoing the change asks the backend
// for that object, and ends it if it still exists.

// refKind is the kind of these changes.
const refKind = "backend"

// idPrefix precedes the keys of a Ref's ID in the arguments of a change.
const idPrefix = "id."

func init() {
	journal.Register(refKind, validRef, undoRef, func(c journal.Change) string { return c.Args["what"] })
}

// refChange returns the journal's form of a Ref.
func refChange(r backend.Ref) journal.Change {
	args := map[string]string{"driver": r.Driver, "what": r.What}
	for k, v := range r.ID {
		args[idPrefix+k] = v
	}
	return journal.Change{Kind: refKind, Args: args}
}

// refOf returns the Ref of a change.
func refOf(c journal.Change) backend.Ref {
	r := backend.Ref{Driver: c.Args["driver"], What: c.Args["what"], ID: map[string]string{}}
	for k, v := range c.Args {
		if k, ok := strings.CutPrefix(k, idPrefix); ok {
			r.ID[k] = v
		}
	}
	return r
}

func validRef(c journal.Change) error {
	if r := refOf(c); r.Driver == "" || len(r.ID) == 0 {
		return fmt.Errorf("%.80q was not made by a backend", r.What)
	}
	return nil
}

func undoRef(c journal.Change) (did bool, err error) {
	r := refOf(c)
	d, err := backend.Open(r.Driver)
	if err != nil {
		return false, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), backend.AttachTimeout)
	defer cancel()
	i, err := d.Attach(ctx, r)
	if errors.Is(err, backend.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, i.Kill(ctx)
}

// sweepRefs ends concurrently what drivers can end in that way. The caller then undoes the changes, and calls done.
func sweepRefs(changes []journal.Change) (done func()) {
	by := map[string][]backend.Ref{}
	for _, c := range changes {
		if c.Kind == refKind {
			r := refOf(c)
			by[r.Driver] = append(by[r.Driver], r)
		}
	}
	var open []backend.Driver
	ctx, cancel := context.WithTimeout(context.Background(), backend.SweepTimeout)
	defer cancel()
	for name, refs := range by {
		d, err := backend.Open(name)
		if err != nil {
			continue // undoing reports the error
		}
		open = append(open, d)
		if s, ok := d.(backend.Sweeper); ok {
			s.Sweep(ctx, refs)
		}
	}
	return func() {
		for _, d := range open {
			d.Close()
		}
	}
}
