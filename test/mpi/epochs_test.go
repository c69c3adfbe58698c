package mpi

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// passed are nm_epochs' lines of checks that found nothing wrong.
var passed = regexp.MustCompile(`(?m)^((?:allocated|created|own) +(\w+)) +ok$`)

// Every rule of one-sided synchronisation and order holds over the provider as it does over
// the library's own shared memory. A check that hangs ends: it names itself, and each rank
// its call. What is left out the library fails on its own memory, too (docs/mpi-troubleshooting.md); but for
// "memory", which needs Open MPI's osc sm.
func TestEpochs(t *testing.T) {
	l := libraries(t)
	for _, c := range []struct {
		l           *library
		name        string
		own, over   []string // environment for its own memory, for the provider
		left, leave string   // checks left out there, here
	}{
		// Without sm it does what it does between hosts: osc rdma over btl ofi.
		{l[1], "alone", []string{"OMPI_MCA_pml=ob1"}, []string{"OMPI_MCA_osc=^sm", "OMPI_MCA_btl=^sm"}, "nocheck", "memory"},
		{l[2], "alone", []string{"MPIR_CVAR_NOLOCAL=0"}, nil, "parity,early,nolock,crowd", "parity,early,nolock,crowd"},
		// With the library that works round what can be.
		{l[2], "preloaded", []string{"MPIR_CVAR_NOLOCAL=0", preload(t)}, []string{preload(t), "FI_IVSHMEM_RANKS=16"}, "crowd", "crowd"},
	} {
		t.Run(c.l.name+"/"+c.name, func(t *testing.T) {
			program := []string{filepath.Join(c.l.programs(t), "nm_epochs"), "--seconds", "120"}
			// More ranks than CPUs take long over MPICH's own memory: they do not sleep.
			own, _ := c.l.start(t, 2, c.own, append(program, "--rounds", "3", "--leave", c.left)...)
			want := checks(own, c.leave)
			if len(want) < 33 {
				t.Fatalf("only %d checks passed on its own memory: %s", len(want), own)
			}
			for i, bytes := range []string{"40000", "8", "40000", "320"} {
				n := 2 + i
				out, u := c.l.run(t, n, c.over, append(program, "--rounds", "6", "--bytes", bytes, "--leave", c.leave)...)
				got := checks(out, "")
				for _, w := range want {
					if !slices.Contains(got, w) {
						t.Errorf("%d ranks: not passed: %s\n%s", n, w, out)
					}
				}
				u.all(t, n)
			}
		})
	}
}

// checks are the kinds of windows and checks that passed, but those in leave.
func checks(out, leave string) []string {
	var names []string
	for _, m := range passed.FindAllStringSubmatch(out, -1) {
		if !slices.Contains(strings.Split(leave, ","), m[2]) {
			names = append(names, m[1])
		}
	}
	return names
}

// What docs/mpi-troubleshooting.md says is a library's own fault is there without the provider, and the
// library preloaded works round it. Where it is not there, a new version has fixed it: take
// it out of docs/mpi-troubleshooting.md and of TestEpochs.
func TestEpochsNative(t *testing.T) {
	openmpi, mpich := libraries(t)[1], libraries(t)[2]
	for _, c := range []struct {
		l     *library
		check string
		ranks int
		env   string
		call  string // that hangs
	}{
		{mpich, "early", 3, "MPIR_CVAR_NOLOCAL=0", "MPI_Win_start"},
		{mpich, "nolock", 2, "MPIR_CVAR_NOLOCAL=0", "MPI_Win_lock"},
		{openmpi, "nocheck", 2, "OMPI_MCA_pml=ob1", "MPI_Win_wait"},
	} {
		t.Run(c.l.name+"/"+c.check, func(t *testing.T) {
			args := []string{filepath.Join(c.l.programs(t), "nm_epochs"), "--only", c.check, "--bytes", "8"}
			if _, log, err := c.l.try(t, c.ranks, []string{c.env}, append(args, "--seconds", "3")...); err == nil ||
				!strings.Contains(log, "this rank is in "+c.call) {
				t.Errorf("it does not hang in %s: %v", c.call, err)
			}
			c.l.start(t, c.ranks, []string{c.env, preload(t)}, append(args, "--seconds", "120")...)
		})
	}
}
