package run

import "time"

// pace estimates the duration of the remaining steps from the completed ones.
type pace struct {
	took map[[3]int]float64 // s of the last repetition of a variant at a point
	sum  map[int]float64    // s of an experiment's
	n    map[int]int
}

func (p *pace) add(s step, seconds float64) {
	if p.took == nil {
		p.took, p.sum, p.n = map[[3]int]float64{}, map[int]float64{}, map[int]int{}
	}
	p.took[[3]int{s.exp, s.point, s.variant}] = seconds
	p.sum[s.exp] += seconds
	p.n[s.exp]++
}

// left returns the duration of steps: that of the same step the last time, else the mean of its experiment, else that
// of all. 0 while nothing is known.
func (p *pace) left(steps []step) time.Duration {
	all, n := 0.0, 0
	for e, s := range p.sum {
		all, n = all+s, n+p.n[e]
	}
	if n == 0 {
		return 0
	}
	total := 0.0
	for _, s := range steps {
		switch t, ok := p.took[[3]int{s.exp, s.point, s.variant}]; {
		case ok:
			total += t
		case p.n[s.exp] > 0:
			total += p.sum[s.exp] / float64(p.n[s.exp])
		default:
			total += all / float64(n)
		}
	}
	return time.Duration(total * float64(time.Second))
}
