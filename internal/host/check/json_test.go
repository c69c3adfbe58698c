package check

import (
	"encoding/json"
	"testing"
)

// TestOldNameOfFix: a fix is also written under its old name, and is read from reports that have only that.
func TestOldNameOfFix(t *testing.T) {
	b, err := json.Marshal(Report{Rows: []Result{{ID: "kvm.works", Fix: "modprobe kvm"}}})
	if err != nil {
		t.Fatal(err)
	}
	var old struct {
		Rows []struct{ ID, Fix, Mend string }
	}
	if err := json.Unmarshal(b, &old); err != nil || old.Rows[0].Mend != "modprobe kvm" || old.Rows[0].Fix != old.Rows[0].Mend {
		t.Errorf("%v: %s", err, b)
	}
	for text, want := range map[string]string{
		`{"id":"kvm.works","mend":"old"}`:             "old",
		`{"id":"kvm.works","fix":"new","mend":"old"}`: "new",
		`{"id":"kvm.works","fix":"new"}`:              "new",
	} {
		var r Result
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Fix != want || r.ID != "kvm.works" {
			t.Errorf("%s: %v, %+v", text, err, r)
		}
	}
}
