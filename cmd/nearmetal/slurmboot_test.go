package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The check at srun resolves relative paths in the directory of srun, as the job's hosts do.
func TestSlurmCheckRelativeShare(t *testing.T) {
	enter(t, "testdata/files")
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"version: 1\nshares:\n- path: .\n":            "",
		"version: 1\nshares: [{path: results/out}]\n": "",
		"version: 1\nshares: [{path: /}]\n":           `"/" is the guests' root`,
	} {
		file := filepath.Join(dir, "shares.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		status := execute([]string{"slurm-boot", "--check", "--", "1 vm=1 file=" + file}, nil, &stdout, &stderr)
		if (status == 0) != (want == "") || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %s", text, status, stderr.String())
		}
	}
}
