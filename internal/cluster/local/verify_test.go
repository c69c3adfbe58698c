package local

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/verify"
)

// Checks that differences at a start are reported line by line, up to a bound, and that strict makes them an error.
func TestTell(t *testing.T) {
	r := &verify.Report{Cluster: "c", Rows: []verify.Row{{VM: "vm0", What: "a", Planned: "1", Found: "1", Status: verify.OK},
		{VM: "vm0", What: "b", Planned: "1", Found: "unread", Status: verify.Note}}}
	var said []string
	notice := func(line string) { said = append(said, line) }
	if err := tell(r, true, notice); err != nil || said != nil {
		t.Errorf("nothing differs: %v %q", err, said)
	}
	for i := 0; i < 10; i++ {
		r.Rows = append(r.Rows, verify.Row{VM: "vm1", What: fmt.Sprint("x", i), Planned: "1", Found: "2", Status: verify.Differs})
	}
	if err := tell(r, false, notice); err != nil || len(said) != 9 ||
		said[0] != "not as planned: vm1: x0: planned 1, found 2" || said[8] != "not as planned in 2 more points (nearmetal verify c lists them)" {
		t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
	}
	said = nil
	err := tell(r, true, notice)
	if err == nil || said != nil || !strings.HasPrefix(err.Error(), "not as planned, in 10 of 12 points: vm1: x0: planned 1, found 2") {
		t.Errorf("strict: %v %q", err, said)
	}
}
