package local

import (
	"context"
	"sync"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/state"
)

// watch marks VMs that end, and closes died when the last has ended. A VM that ends before the cluster is ready ends
// the start.
func (m *VMs) watch(giveUp context.CancelCauseFunc) {
	m.watched.start(len(m.vms))
	for _, v := range m.vms {
		i, noted := v.current()
		go m.watchOne(v, i, noted, giveUp)
	}
}

// watchOne marks a VM when it ends, unless a restart ends it, and closes noted. v may have another instance than i by
// then, because a restart does not wait for watchOne.
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
		case state.Booting: // the record's lock is held: Boot checks ctx after it has written Ready
			giveUp(v.ended(" while the cluster booted"))
		case state.Ready:
			select {
			case m.watched.lost <- v.ended(""):
			default: // nobody receives, and restarted VMs have ended before
			}
		}
	})
}

// watched counts the running VMs.
type watched struct {
	lost chan error    // receives an error for each VM that ends unexpectedly
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

// more adds a VM to watch; false: all VMs have ended.
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
