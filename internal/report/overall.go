package report

import (
	"fmt"
	"strings"

	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/words"
)

// wordsTerm explains the words of a tally.
var wordsTerm = term{"faster, slower, equal", fmt.Sprintf("by repetitions that were made one after the other while the cores were in one state; "+
	"equal: within %g %%; undecided: more repetitions would tell. At most %g %% of the points with such a word have a wrong one", verdict.Margin*100, verdict.Wrong*100)}

// Overall says for each variant that was compared what it was found to be, over all experiments of the run:
// "VM.44 against native.48: faster at 14 of 24 sizes, equal at 9, undecided at 1". There is none without a verdict.
func (r *RunReport) Overall() []string {
	type side struct{ variant, base int }
	var order []side
	counts, nouns := map[side]map[verdict.Word]int{}, map[side]string{}
	for _, e := range r.Experiments {
		for _, v := range e.Verdicts {
			if v.State == None {
				continue
			}
			s := side{v.Variant, e.Base}
			if counts[s] == nil {
				counts[s], nouns[s] = map[verdict.Word]int{}, e.noun()
				order = append(order, s)
			}
			if nouns[s] != e.noun() {
				nouns[s] = "point"
			}
			for w, n := range v.Words {
				counts[s][w] += n
			}
		}
	}
	var out []string
	for _, s := range order {
		out = append(out, fmt.Sprintf("%s against %s: %s", r.Run.Variants[s.variant].Label, r.Run.Variants[s.base].Label, tally(counts[s], nouns[s])))
	}
	return out
}

// overall returns the lines of all runs, each with its run's name where there are several.
func (r *Report) overall() []string {
	var out []string
	for _, run := range r.Runs {
		for _, line := range run.Overall() {
			if len(r.Runs) > 1 {
				line = run.Run.ID + ": " + line
			}
			out = append(out, line)
		}
	}
	return out
}

// noun is what an experiment's points are.
func (e *Experiment) noun() string {
	if e.Case.Kind == "size" {
		return "size"
	}
	return "point"
}

// tally writes how many points each word has: "faster at 14 of 24 sizes, equal at 9".
func tally(counts map[verdict.Word]int, noun string) string {
	all := 0
	for _, n := range counts {
		all += n
	}
	var parts []string
	for _, w := range []verdict.Word{verdict.Faster, verdict.Slower, verdict.Equal, verdict.Undecided} {
		switch n := counts[w]; {
		case n == 0:
		case all == 1:
			parts = append(parts, string(w))
		case n == all:
			parts = append(parts, fmt.Sprintf("%s at all %s", w, words.Count(all, noun, noun+"s")))
		case len(parts) == 0:
			parts = append(parts, fmt.Sprintf("%s at %d of %s", w, n, words.Count(all, noun, noun+"s")))
		default:
			parts = append(parts, fmt.Sprintf("%s at %d", w, n))
		}
	}
	return strings.Join(parts, ", ")
}
