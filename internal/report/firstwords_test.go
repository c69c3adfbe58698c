package report

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nearmetal/test/golden"
)

// Checks that the terms of a report are explained where they first appear: the tolerance, the names of variants, and
// the paper.
func TestFirstWords(t *testing.T) {
	run, samples := synthetic()
	run.Variants[0].Description = "natively on 48 cores"
	run.Variants[4].Description = "in 2 VMs with 2 vCPUs and 2048 MiB in all"
	run.Variants[4].Label = "VM.2.2"
	for i := range samples {
		if samples[i].Variant == "VM.2" {
			samples[i].Variant = "VM.2.2"
		}
	}
	r := reportOf(t, writeRun(t, run, samples), "002")
	page := htmlOf(t, r)
	body := page[strings.Index(page, "<body>"):]
	end := strings.Index(body, "</header>")
	paper := strings.Index(body, "Beside paper 002")
	if end < 0 || paper < 0 {
		t.Fatal("the page has no header, or no paper")
	}
	plain := func(s string) string {
		s = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(s, "")
		return strings.TrimSpace(strings.ReplaceAll(s, "\u00a0", " "))
	}
	heading := body[paper:]
	heading = heading[:strings.Index(heading, "</p>")] // with the line below it
	var text bytes.Buffer
	if err := r.Text(&text, false); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(text.String(), "\n\n")
	var beside string
	for _, line := range strings.Split(rest, "\n") {
		if strings.Contains(line, "paper 002") {
			beside = line
			break
		}
	}
	golden.Check(t, filepath.Join("testdata", "first-words.txt"), "page:\n"+plain(body[:end])+"\n"+plain(heading)+"\n\ntext:\n"+head+"\n"+beside+"\n")
}
