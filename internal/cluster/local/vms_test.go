package local

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/test/clustertest"
)

// up starts n VMs that are processes. They end with the test.
func up(t *testing.T, l *clustertest.Lab, n int) *VMs {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Patience)
	defer cancel()
	s := l.Spec(n)
	own, err := state.Create(state.Record{Name: s.Name, State: state.Booting, Backend: s.Backend, Spec: s})
	if err != nil {
		t.Fatal(err)
	}
	m := New(own, channel.NewSwitchboard(), nil)
	t.Cleanup(func() {
		m.Stop(context.Background(), false)
		if err := own.Undo(); err != nil {
			t.Error(err)
		}
		m.Close()
		own.Remove()
	})
	if err := m.Prepare(ctx, start.Request{Spec: s, BootTimeout: clustertest.Patience}, start.Events{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	return m
}

// Checks that a client that loses a VM's channel finds in Lost why the VM ended, even if the record is written
// slowly.
func TestLostBeforeChannel(t *testing.T) {
	m := up(t, clustertest.New(t), 2)
	v := m.vms[1]
	found := make(chan error, 1)
	go func() {
		<-v.agent.Mux().Done()
		select {
		case err := <-m.Lost():
			found <- err
		default:
			found <- nil
		}
	}()
	m.own.Write(func(r *state.Record) {
		unix.Kill(r.VMs[1].PID, unix.SIGKILL)
		<-v.inst.Done()
		select {
		case <-v.agent.Mux().Done():
		case <-time.After(100 * time.Millisecond): // simulates a record that is written slowly
		}
	})
	if err := clustertest.Await(t, "the channel's end", found); err == nil || !strings.Contains(err.Error(), "vm1 ended") {
		t.Errorf("the channel ended first: %v", err)
	}
}

// Checks that a cluster that is not a part does not listen for a front.
func TestNoFront(t *testing.T) {
	if err := (&VMs{}).answer([]string{"80"}); err == nil {
		t.Error("VMs that are no part listen for a front")
	}
}
