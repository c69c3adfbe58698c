package gate

import (
	"encoding/xml"
	"fmt"
	"io"
	"unicode"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Failure *message `xml:"failure,omitempty"`
	Skipped *message `xml:"skipped,omitempty"`
}

type message struct {
	Message string `xml:"message,attr"`
}

// JUnit writes the report as JUnit's XML: a suite for each variant, a test for each point.
func (r *Report) JUnit(w io.Writer) error {
	var doc junitSuites
	at := map[string]int{}
	for _, row := range r.Rows {
		i, ok := at[row.Variant]
		if !ok {
			i = len(doc.Suites)
			at[row.Variant] = i
			doc.Suites = append(doc.Suites, junitSuite{Name: printable(row.Variant)})
		}
		s := &doc.Suites[i]
		c := junitCase{Class: printable(row.Variant + "." + row.Case), Name: printable(row.Case + " " + row.Point)}
		switch row.Verdict {
		case Worse, Missing:
			s.Failures++
			c.Failure = &message{printable(row.Text())}
		case Emulated, New:
			s.Skipped++
			c.Skipped = &message{printable(row.Text())}
		}
		s.Tests++
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Text returns the row's verdict in words.
func (r *Row) Text() string {
	switch r.Verdict {
	case Missing:
		return fmt.Sprintf("%s was %.4g %s, and has no result now", r.Metric, r.Before, r.Unit)
	case New:
		return "nothing to compare it with"
	case Emulated:
		return "measured in emulated VMs: no ratio is made of it"
	}
	return fmt.Sprintf("%s was %.4g and is %.4g %s: %+.1f %% (%+.1f to %+.1f)", r.Metric, r.Before, r.After, r.Unit, 100*r.Change, 100*r.Low, 100*r.High)
}

// printable removes characters that XML does not permit, because a label may come from an untrusted file. text.Clean
// is not used, because XML rejects other characters than a terminal.
func printable(s string) string {
	out := []rune(s)
	for i, c := range out {
		if unicode.IsControl(c) || c == unicode.ReplacementChar || c == 0xFFFE || c == 0xFFFF {
			out[i] = '?'
		}
	}
	return string(out)
}
