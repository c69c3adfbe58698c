package verdict

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
)

// series draws repetitions of two sides; a is truth times as fast as b. noise has the factors that both share in a
// repetition and those of each.
type series struct {
	name  string
	truth float64
	draw  func(r *rand.Rand) (common, a, b float64) // factors of a time; a and b have the same distribution
	moves float64                                   // probability that the cores are in the other state
}

func (s *series) repetitions(r *rand.Rand, n int) (a, b []Value) {
	for rep := range n {
		common, ownA, ownB := s.draw(r)
		sides := [2]*[]Value{&a, &b}
		for i, own := range []float64{ownA / s.truth, ownB} {
			v := Value{Rep: rep, Value: 10 * common * own, PingPong: 0.2 * (1 + 0.05*r.Float64())}
			if r.Float64() < s.moves {
				v.Value, v.PingPong = v.Value/3, v.PingPong/4
			}
			*sides[i] = append(*sides[i], v)
		}
	}
	return a, b
}

// look evaluates the looks of one point, as a run does, and returns the last one's word.
func look(a, b []Value) (w Word, n int) {
	for _, n = range Looks {
		if _, w = Judge(Ratios(a[:n], b[:n], false)); w != Undecided {
			break
		}
	}
	return w, n
}

func normal(sd float64) func(*rand.Rand) (float64, float64, float64) {
	return func(r *rand.Rand) (float64, float64, float64) {
		return math.Exp(0.3 * r.NormFloat64()), math.Exp(sd * r.NormFloat64()), math.Exp(sd * r.NormFloat64())
	}
}

// busy draws random delays: mostly short ones, sometimes very long ones.
func busy(r *rand.Rand) (float64, float64, float64) {
	one := func() float64 { return 1 + 0.02*math.Pow(r.Float64(), -0.8) }
	return 1, one(), one()
}

// TestFalseVerdicts: verdicts on samples with a known truth are wrong no more often than promised, for any
// distribution of the noise, and although each point is looked at several times.
func TestFalseVerdicts(t *testing.T) {
	const points = 4000
	edge := 1 / (1 - Margin)
	for _, s := range []series{
		{"none, 5 %", 1, normal(0.05), 0},
		{"none, 30 %", 1, normal(0.3), 0},
		{"none, busy", 1, busy, 0},
		{"none, cores moved", 1, normal(0.05), 0.3},
		{"just over the margin", edge * 1.0001, normal(0.01), 0},
		{"just below the margin", (1 - Margin) / 1.0001, normal(0.01), 0},
		{"just over the margin, busy", edge * 1.0001, busy, 0},
	} {
		r, wrong := rand.New(rand.NewSource(1)), 0
		for range points {
			switch w, _ := look(s.repetitions(r, Looks[len(Looks)-1])); {
			case w == Faster && s.truth <= 1, w == Slower && s.truth >= 1, w == Equal && (s.truth < 1-Margin || s.truth > edge):
				wrong++
			}
		}
		most := points * Wrong
		if most += 4 * math.Sqrt(most); float64(wrong) > most { // 4 standard deviations of the count
			t.Errorf("%s: %d of %d verdicts are wrong, more than %.0f", s.name, wrong, points, most)
		}
		t.Logf("%s: %d of %d wrong", s.name, wrong, points)
	}
}

// TestDecides: a clear difference is decided, mostly at the first look, also if the cores are moved.
func TestDecides(t *testing.T) {
	const points = 500
	for _, c := range []struct {
		series
		want  Word
		least int // least number of points with that word
	}{
		{series{"faster", 1.1, normal(0.03), 0}, Faster, 495},
		{series{"slower", 0.9, normal(0.03), 0}, Slower, 495},
		{series{"equal", 1, normal(0.005), 0}, Equal, 495},
		{series{"faster, cores moved", 1.2, normal(0.03), 0.2}, Faster, 490},
	} {
		r, words, looks := rand.New(rand.NewSource(1)), map[Word]int{}, map[int]int{}
		for range points {
			w, n := look(c.repetitions(r, Looks[len(Looks)-1]))
			words[w]++
			looks[n]++
		}
		if words[c.want] < c.least {
			t.Errorf("%s: %v of %d points, want at least %d %s", c.name, words, points, c.least, c.want)
		}
		t.Logf("%s: %v, after repetitions: %v", c.name, words, looks)
	}
}

// TestRatios: only repetitions in one state of the cores make a pair.
func TestRatios(t *testing.T) {
	v := func(rep int, value, pingpong float64) Value { return Value{Rep: rep, Value: value, PingPong: pingpong} }
	moved := v(3, 1, 0.2)
	moved.Moved = true
	for _, c := range []struct {
		name string
		a, b []Value
		more bool
		want string
	}{
		{"times", []Value{v(0, 2, 0.2), v(1, 4, 0.2)}, []Value{v(0, 1, 0.2), v(1, 8, 0.21)}, false, "[0.5 2]"},
		{"rates", []Value{v(0, 2, 0.2), v(1, 4, 0.2)}, []Value{v(0, 1, 0.2), v(1, 8, 0.21)}, true, "[2 0.5]"},
		{"not known", []Value{v(0, 2, 0), v(1, 4, 0)}, []Value{v(0, 1, 0), v(1, 8, 0)}, false, "[0.5 2]"},
		{"one side alone", []Value{v(0, 2, 0.2)}, []Value{v(1, 1, 0.2)}, false, "[]"},
		{"two states in a pair", []Value{v(0, 2, 0.2)}, []Value{v(0, 1, 0.05)}, false, "[]"},
		{"moved", []Value{moved}, []Value{v(3, 1, 0.2)}, false, "[]"},
		{"two states", []Value{v(0, 2, 0.05), v(1, 4, 0.2), v(2, 4, 0.2)}, []Value{v(0, 1, 0.05), v(1, 8, 0.2), v(2, 8, 0.2)}, false, "[2 2]"},
		{"no performance", []Value{v(0, 0, 0.2), v(1, -1, 0.2), v(2, math.NaN(), 0.2), v(4, math.Inf(1), 0.2)},
			[]Value{v(0, 1, 0.2), v(1, 1, 0.2), v(2, 1, 0.2), v(4, 1, 0.2)}, false, "[]"},
	} {
		if got := fmt.Sprint(Ratios(c.a, c.b, c.more)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestOpposite: the same sides in the other order have the opposite verdict.
func TestOpposite(t *testing.T) {
	opposite := map[Word]Word{Faster: Slower, Slower: Faster, Equal: Equal, Undecided: Undecided}
	r := rand.New(rand.NewSource(2))
	seen := map[Word]bool{}
	for i := range 500 {
		s := series{truth: 1 + 0.02*r.NormFloat64(), draw: normal(0.004 * float64(1+i%3))}
		a, b := s.repetitions(r, Looks[i%len(Looks)])
		_, w := Judge(Ratios(a, b, false))
		_, back := Judge(Ratios(b, a, false))
		if back != opposite[w] {
			t.Errorf("%s one way and %s the other", w, back)
		}
		seen[w] = true
	}
	if len(seen) != 4 {
		t.Errorf("only %v were met", seen)
	}
}

func TestJudge(t *testing.T) {
	if _, w := Judge(nil); w != Undecided {
		t.Errorf("nothing is %s", w)
	}
	few := []float64{2, 2, 2, 2, 2, 2}
	if _, w := Judge(few); w != Undecided {
		t.Errorf("%d repetitions are %s", len(few), w)
	}
	if _, w := Judge(append(few, 2)); w != Faster {
		t.Errorf("twice as fast %d times is %s", Looks[0], w)
	}
}
