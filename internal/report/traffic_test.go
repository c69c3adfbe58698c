package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/traffic"
)

// What ranks sent to each other is a section of the page, with the matrix as a picture and as a table and the line of
// advice; it is in the text and in the data, too. What is no matrix is a note.
func TestTraffic(t *testing.T) {
	run, samples := synthetic()
	sent := record.Traffic{Case: run.Cases[0].Name, Variant: run.Variants[1].Label, Point: map[string]string{"ranks": "2"}, Matrix: traffic.Matrix{
		Ranks:  []traffic.Rank{{Rank: 0, VM: "vm0"}, {Rank: 1, VM: "<b>"}},
		Pairs:  []traffic.Pair{{From: 0, To: 1, Channel: "region", Messages: 3, Bytes: 3072, Classes: []uint64{0, 3, 0, 0, 0, 0}}},
		Advice: "put them on one host",
	}}
	broken := sent
	broken.Pairs = []traffic.Pair{{From: 0, To: 7, Channel: "region", Classes: []uint64{1}}}
	run.Traffic = []record.Traffic{sent, broken}
	r := reportOf(t, writeRun(t, run, samples), "")
	page := htmlOf(t, r)
	title := run.Cases[0].Title + ", " + sent.Variant + ", ranks 2"
	for _, part := range []string{"<h2>What ranks sent to each other</h2>", "<h3>" + title + "</h3>", `<p class="note">put them on one host</p>`,
		`<img class="picture" alt="Bytes between ranks: ` + title + `" src="data:image/svg`, "<tr><td>0<td>vm0<td>·<td>3 KiB", "<td>&lt;b&gt;", "<tr><td>region<td>3<td>3 KiB", "<th>from VM, to VM", "<td>3 KiB region",
		"counts of messages between ranks 0 and 7"} {
		if !strings.Contains(page, part) {
			t.Errorf("no %q", part)
		}
	}
	var b bytes.Buffer
	if err := r.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"What ranks sent: " + title, "\n  0     vm0  ·  3 KiB\n", "\n  put them on one host\n"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %q in\n%s", part, b.String())
		}
	}
	text, err := json.Marshal(r.View())
	if err != nil || !strings.Contains(string(text), `"traffic":[{"case":"`) {
		t.Error(err)
	}
	run.Traffic = nil
	if page := htmlOf(t, reportOf(t, writeRun(t, run, samples), "")); strings.Contains(page, "What ranks sent") {
		t.Error("a section without counts")
	}
}
