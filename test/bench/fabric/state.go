package main

import (
	"fmt"
	"math"
	"strings"

	"nearmetal/internal/stats"
)

// The host moves the machine's cores, which shows in a cache line's ping-pong (stats.SameState). Only what was measured in one
// state is compared.

// tries is how often a way is run until the ping-pongs before and after it are of one state.
const tries = 3

// machine runs ways, and takes the ping-pong between them.
type machine struct {
	pingpong  func() (float64, error) // us
	last      float64                 // us; 0: there is none
	all       []float64               // us, in the order taken
	runs, out int                     // runs that have figures, and how many of them were left out
}

// look takes the ping-pong.
func (m *machine) look() error {
	v, err := m.pingpong()
	if err == nil && !(v > 0) {
		err = fmt.Errorf("%v us", v)
	}
	if err != nil {
		m.last = 0
		return fmt.Errorf("a cache line's ping-pong: %w", err)
	}
	m.last = v
	m.all = append(m.all, v)
	return nil
}

// run runs a way, again if the cores were moved meanwhile, and returns its figures and
// their ping-pong in us: the geometric mean of the one before and the one after, which is
// the next way's before.
func (m *machine) run(way func() (map[key]float64, error)) (map[key]float64, float64, error) {
	if m.last == 0 {
		if err := m.look(); err != nil {
			return nil, 0, err
		}
	}
	for try := 1; ; try++ {
		before := m.last
		figures, err := way()
		lost := m.look()
		if err != nil {
			return nil, 0, err
		}
		if lost != nil {
			return nil, 0, lost
		}
		after := m.last
		if before <= stats.SameState*after && after <= stats.SameState*before {
			m.runs++
			return figures, math.Sqrt(before * after), nil
		}
		if try == tries {
			m.runs++
			m.out++
			return nil, 0, fmt.Errorf("the cores were moved each of %d times, at last from a ping-pong of %.2g us to %.2g", tries, before, after)
		}
	}
}

// String says which states the machine was in.
func (m *machine) String() string {
	all := stats.States(m.all)
	if len(all) == 1 {
		return fmt.Sprintf("a cache line's ping-pong: %.2g to %.2g us in %d measurements", all[0].From, all[0].To, all[0].N)
	}
	var each []string
	for i, s := range all {
		word := ""
		if i == 0 {
			word = " measurements"
		}
		each = append(each, fmt.Sprintf("%.2g us (%d%s)", s.Middle, s.N, word))
	}
	return fmt.Sprintf("a cache line's ping-pong: %s: the host moved the cores; ratios are only between figures of one state, and %d of %d runs were left out",
		strings.Join(each, ", "), m.out, m.runs)
}
