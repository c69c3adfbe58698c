package plan

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/test/golden"
)

const machines = "../../test/topology/"

// goldenCase returns a cluster file of testdata with the machine that begins its name.
func goldenCase(t *testing.T, file string) (*spec.Cluster, topology.Host, string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := spec.Parse(filepath.Base(file), text)
	if err != nil {
		t.Fatal(err)
	}
	spec.Defaults(c)
	c.Accel = "kvm"
	name := strings.TrimSuffix(filepath.Base(file), ".yaml")
	for machine := name; ; machine = machine[:strings.LastIndexByte(machine, '-')] {
		if _, err := os.Stat(machines + machine + ".machine"); err == nil {
			h, err := topology.Open(machines + machine + ".machine")
			if err != nil {
				t.Fatal(err)
			}
			comment := ""
			for _, line := range strings.Split(string(text), "\n") {
				if strings.HasPrefix(line, "# ") {
					comment += line + "\n"
				}
			}
			return c, *h, comment
		}
		if !strings.Contains(machine, "-") {
			t.Fatalf("%s: its name begins with no machine's", file)
		}
	}
}

// TestGolden compares the plans of each machine with testdata. The first lines of a file describe the placement of
// the published system.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, h, comment := goldenCase(t, file)
			seen[h.Name] = true
			if comment == "" {
				t.Error("no comment that says what the seed did, or why the plan is right")
			}
			p, err := Make(c, []topology.Host{h}, Ledger{})
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			got.WriteString(comment)
			if err := p.Write(&got, "text", true); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".golden", got.String())
			// A plan that was written and read again is unchanged.
			for _, format := range []string{"yaml", "json"} {
				var b, again bytes.Buffer
				if err := p.Write(&b, format, true); err != nil {
					t.Fatal(err)
				}
				q, err := Load(&b)
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				if q.Write(&again, "text", true); !bytes.HasSuffix(got.Bytes(), again.Bytes()) {
					t.Errorf("%s read back: %s", format, again.Bytes())
				}
			}
		})
	}
	all, _ := filepath.Glob(machines + "*.machine")
	for _, m := range all {
		if name := strings.TrimSuffix(filepath.Base(m), ".machine"); !seen[name] {
			t.Errorf("no plan for the machine %s", name)
		}
	}
}
