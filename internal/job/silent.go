package job

import (
	"context"
	"sync"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/session"
)

// MarkSilent sets the state of VMs that are ready and do not answer within session.Silence to state.Silent. It
// queries the VMs of all clusters in the list concurrently.
func MarkSilent(list []state.Record) {
	var wg sync.WaitGroup
	for i := range list {
		r := &list[i]
		if r.State != state.Ready || r.Paused {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			markSilent(r)
		}()
	}
	wg.Wait()
}

// markSilent is MarkSilent for one cluster.
func markSilent(r *state.Record) {
	reach, over := context.WithTimeout(context.Background(), session.Silence)
	defer over()
	c, err := client.Connect(reach, r.Name)
	if err != nil {
		return // other commands report that an owner does not answer
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), session.Silence)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.VMs {
		v := &r.VMs[i]
		if v.State != state.Ready {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.VM(v.Name).Answers(ctx); err != nil && err == context.Cause(ctx) {
				v.State = state.Silent
			}
		}()
	}
	wg.Wait()
}
