package report

// term is a word of a report, and its meaning.
type term struct{ Name, Means string }

// terms explains the words that a report uses from its headline on: its tolerance, and its variants.
func (r *RunReport) terms() []term {
	var list []term
	for _, e := range r.Experiments {
		if t := e.toleranceShown(); t.Share > 0 {
			list = append(list, term{"tolerance", t.Percent() + ", the loss of performance against " + e.baseLabel() + " that is accepted: " + t.Reason})
			break
		}
	}
	if len(r.Overall()) > 0 {
		list = append(list, wordsTerm)
	}
	for i := range r.Run.Variants {
		v := &r.Run.Variants[i]
		if v.Label != "" && v.Description != "" {
			list = append(list, term{v.Label, v.Description})
		}
	}
	return list
}
