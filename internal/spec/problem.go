package spec

import (
	"fmt"
	"strings"
)

// maxProblems is how many problems of one file are reported; the others are only counted.
const maxProblems = 20

// Problem is one mistake in a cluster file or in a Cluster put together from flags.
type Problem struct {
	File    string // "" without a file
	Line    int    // from 1; 0: not known
	Column  int    // from 1; 0: not known
	Key     string // vms[0].memory; "" for the file as a whole
	Message string // the fault and the remedy, one line
}

// Error returns "cluster.yaml:12:7: vms[0].memory: MESSAGE", without unknown parts.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
			if p.Column > 0 {
				fmt.Fprintf(&b, ":%d", p.Column)
			}
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are the mistakes of one file in the order of its lines, at most 20.
type Problems struct {
	List []Problem
	More int // number of mistakes that are not in List
}

// Error returns Lines as one text.
func (p *Problems) Error() string { return strings.Join(p.Lines(), "\n") }

// Lines returns one line for each problem.
func (p *Problems) Lines() []string {
	lines := make([]string, 0, len(p.List)+1)
	for _, problem := range p.List {
		lines = append(lines, problem.Error())
	}
	if p.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", p.More))
	}
	return lines
}

func (p *Problems) add(problem Problem) {
	if len(p.List) >= maxProblems {
		p.More++
		return
	}
	p.List = append(p.List, problem)
}
