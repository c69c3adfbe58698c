package export

import (
	"encoding/csv"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

func TestCSV(t *testing.T) {
	r := &record.Run{ID: "r", Variants: []record.Variant{{Label: "VM.2", Kind: "vm", Emulated: true}}, Cases: []record.Case{{Name: "a/b", Metric: "latency", Unit: "us"}}}
	samples := []record.Sample{
		{Case: "a/b", Variant: "VM.2", Point: map[string]string{"size": "8"}, Value: 1.25, OK: true},
		{Case: "a/b", Variant: "VM.2", Point: map[string]string{"ranks": "2"}, Rep: 1, Error: "a, \"b\"\nc"},
	}
	var b strings.Builder
	if err := CSV(&b, r, samples); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v\n%s", err, b.String())
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	if rows[1][at["size"]] != "8" || rows[1][at["value"]] != "1.25" || rows[1][at["emulated"]] != "true" || rows[1][at["unit"]] != "us" {
		t.Errorf("%q", rows[1])
	}
	if rows[2][at["ranks"]] != "2" || rows[2][at["value"]] != "" || rows[2][at["error"]] != "a, \"b\"\nc" {
		t.Errorf("%q", rows[2])
	}
}
