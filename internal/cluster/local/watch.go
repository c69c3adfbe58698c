package local

import (
	"context"
	"sync"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/state"
)

// watch marks VMs that end, and reports when the last has. One that ends before the cluster
// is ready ends the start.
func (m *VMs) watch(giveUp context.CancelCauseFunc) {
	m.watched.start(len(m.vms))
	for _, v := range m.vms {
		i, noted := v.current()
		go m.watchOne(v, i, noted, giveUp)
	}
}

// watchOne marks one VM when it ends, unless that is for a restart, and closes noted. i may be v's no more by then: a
// restart does not wait for this.
func (m *VMs) watchOne(v *vm, i backend.Instance, noted chan<- struct{}, giveUp context.CancelCauseFunc) {
	defer m.watched.less()
	defer close(noted)
	<-i.Done()
	v.mu.Lock()
	left := v.leaving == i
	v.mu.Unlock()
	if left {
		return
	}
	end := v.ended("").Error()
	m.board.EndVM(v.plan.Name, end+" (nearmetal logs "+m.own.Name()+"/"+v.plan.Name+" shows its console)")
	m.own.Write(func(r *state.Record) {
		r.VMs[v.index].State, r.VMs[v.index].PID, r.VMs[v.index].Ended = state.Dead, 0, end
		switch r.State {
		case state.Booting: // under the record's lock: Up looks after it has written Ready
			giveUp(v.ended(" while the cluster booted"))
		case state.Ready:
			select {
			case m.watched.lost <- v.ended(""):
			default: // nobody asks, and restarted VMs have ended before
			}
		}
	})
}

// watched counts the VMs that run.
type watched struct {
	lost chan error    // gets an error for each VM that ends by itself
	died chan struct{} // closed when no VM runs any more

	mu     sync.Mutex
	living int
}

// start begins to watch n VMs.
func (w *watched) start(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.living = n
}

// more announces a VM that is to be watched; false: none is any more.
func (w *watched) more() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.living == 0 {
		return false
	}
	w.living++
	return true
}

// less ends the watch of one VM.
func (w *watched) less() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.living--; w.living == 0 {
		close(w.died)
	}
}
