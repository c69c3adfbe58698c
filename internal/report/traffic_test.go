package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/traffic"
)

// Checks that traffic between ranks is a section of the page, with the matrix as a picture and as a table and the
// line of advice, and that it is in the text and in the data. An invalid matrix is a note.
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
		`<div class="heat"><svg class="plot"`, "<tr><td>0<td>vm0<td>·<td>3 KiB", "<td>&lt;b&gt;", "<tr><td>region<td>3<td>3 KiB", "<th>from VM, to VM", "<td>3 KiB region",
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
	// If no rank counts, the counters of the VMs' interfaces replace the matrix.
	sent.Matrix, sent.Carried = *traffic.Of(nil), []traffic.Carried{{VM: "<i>", Interface: "rxe0/1", Received: 2048, Sent: 3072}, {VM: "vm9", Interface: "eth0"}}
	run.Traffic = []record.Traffic{sent}
	r = reportOf(t, writeRun(t, run, samples), "")
	page = htmlOf(t, r)
	for _, part := range []string{"<h3>" + title + "</h3>", "nearmetal&#39;s provider is in VMs only where", "<th>interface<th>received<th>sent",
		"<td>&lt;i&gt;<td>rxe0/1<td>2 KiB<td>3 KiB"} {
		if !strings.Contains(page, part) {
			t.Errorf("no %q", part)
		}
	}
	if strings.Contains(page, "vm9") || strings.Contains(page, "Bytes between ranks") {
		t.Error("what carried nothing is shown, or a matrix of no ranks")
	}
	b.Reset()
	if err := r.Text(&b, false); err != nil || !strings.Contains(b.String(), "rxe0/1") || !strings.Contains(b.String(), "3 KiB") {
		t.Errorf("%v:\n%s", err, b.String())
	}
	run.Traffic = nil
	if page := htmlOf(t, reportOf(t, writeRun(t, run, samples), "")); strings.Contains(page, "What ranks sent") {
		t.Error("a section without counts")
	}
}
