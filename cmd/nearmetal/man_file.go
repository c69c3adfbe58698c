package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// writeFilePage writes nearmetal-cluster(5), the manual page of the cluster file, to dir. page is
// docs/reference/cluster.md; docs is the directory of pages that it names.
func writeFilePage(page, dir, docs string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("the page of the cluster file: %w", err)
	}
	date := ""
	if d := sourceDate(); d != nil {
		date = d.Format("Jan 2006")
	}
	path := filepath.Join(dir, "nearmetal-cluster.5")
	if err := os.WriteFile(path, filePage(string(text), date, docs), 0o644); err != nil {
		return fmt.Errorf("cannot write a manual page: %w", err)
	}
	return nil
}

// pageLink matches a link of Markdown to another page, anchor a link within the page.
var (
	pageLink   = regexp.MustCompile(`\[([^\]]+)\]\(([a-z./]+\.(?:md|json))\)`)
	anchorLink = regexp.MustCompile(`\[([a-z]+(?:\[\])?(?:\.[a-z]+\[\])*|[^\[\]]+)\]\(#[^)]*\)`)
)

// filePage returns the manual page of the Markdown page text.
func filePage(text, date, docs string) []byte {
	_, body, _ := strings.Cut(text, "\n# ") // a generated page has a notice before its heading
	_, body, _ = strings.Cut(body, "\n")
	body = strings.ReplaceAll(body, "\n## ", "\n# ")
	body = anchorLink.ReplaceAllString(body, "$1")
	body = pageLink.ReplaceAllString(body, "$1 ("+docs+"/reference/$2)")
	body = pageOfDocs.ReplaceAllString(body, docs+"/$1")
	return md2man.Render([]byte(fmt.Sprintf("%% \"NEARMETAL-CLUSTER\" \"5\" %q %q \"File formats\"\n"+
		"# NAME\n\nnearmetal-cluster - the cluster file\n\n# DESCRIPTION\n%s\n# SEE ALSO\n\nnearmetal-run(1), nearmetal-up(1), nearmetal-spec-validate(1)\n",
		date, "nearmetal "+version, keyLists(body))))
}

// keyLists turns each table of keys into a list, because a terminal is too narrow for tables.
func keyLists(body string) string {
	var out []string
	for _, line := range strings.Split(body, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			out = append(out, line)
		case len(cells) == 4 && strings.HasPrefix(cells[0], " `"):
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			key := "* **" + strings.Trim(cells[0], "`") + "** (" + cells[1]
			if cells[2] != "" {
				key += "; default " + cells[2]
			}
			out = append(out, key+"): "+cells[3])
		}
	}
	return strings.Join(out, "\n")
}
