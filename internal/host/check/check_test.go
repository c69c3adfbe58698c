package check

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	pageOfSource = regexp.MustCompile(`(docs/[a-z-]+\.md)(?: \(([^)]*)\))?`)
	versionIn    = regexp.MustCompile(`[0-9]+\.[0-9]+`)
)

// TestRowsAreWhole: every row has all its texts, and a unique ID.
func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	words := map[string]Group{}
	for _, r := range Rows() {
		word, what, ok := strings.Cut(r.ID, ".")
		if !ok || what == "" || strings.ToLower(r.ID) != r.ID || strings.ContainsAny(r.ID, " _/*") {
			t.Errorf("%q is not GROUP.WHAT", r.ID)
		}
		if seen[r.ID] {
			t.Errorf("%s twice", r.ID)
		}
		seen[r.ID] = true
		if g, ok := words[word]; ok && g != r.Group {
			t.Errorf("%s is in %q, others of %s in %q", r.ID, r.Group, word, g)
		}
		words[word] = r.Group
		for what, text := range map[string]string{"title": r.Title, "reads": r.Reads, "wants": r.Wants, "why": r.Why,
			"source": r.Source, "costs": r.Costs, "fix": r.Fix, "needs": string(r.Needs)} {
			if text == "" {
				t.Errorf("%s: no %s", r.ID, what)
			}
		}
		for _, cited := range pageOfSource.FindAllStringSubmatch(r.Source, -1) {
			page, err := os.ReadFile(filepath.Join("../../..", cited[1]))
			if err != nil {
				t.Errorf("%s: %v", r.ID, err)
			}
			for _, version := range versionIn.FindAllString(cited[2], -1) {
				if !strings.Contains(string(page), version) {
					t.Errorf("%s: %s does not name %s", r.ID, cited[1], version)
				}
			}
		}
		if r.look == nil || len(r.Profiles) == 0 {
			t.Errorf("%s: looks nowhere, or for nobody", r.ID)
		}
	}
}

// TestThisHost: on any host Run returns a result for each row, and its JSON can be read back.
func TestThisHost(t *testing.T) {
	for _, p := range append(Profiles, "") {
		r, err := Run(context.Background(), Options{Profile: p})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, n := range r.Summary {
			sum += n
		}
		if len(r.Rows) == 0 || sum != len(r.Rows) || r.Host == "" {
			t.Errorf("%q: %d rows, %v", p, len(r.Rows), r.Summary)
		}
		for _, row := range r.Rows {
			if row.Found == "" || row.Status == "" {
				t.Errorf("%s: %q, found %q", row.ID, row.Status, row.Found)
			}
		}
		b, err := json.Marshal(r)
		var back Report
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || len(back.Rows) != len(r.Rows) {
			t.Errorf("%v, %d rows of %d", err, len(back.Rows), len(r.Rows))
		}
	}
}

// TestHugePagesEmulated: huge pages are not offered if VMs are emulated, unless requested.
func TestHugePagesEmulated(t *testing.T) {
	for _, c := range []struct {
		kvm  error
		huge uint64
		none bool
	}{{errors.New("no KVM"), 0, true}, {errors.New("no KVM"), 1 << 30, false}, {nil, 0, false}} {
		f, err := newFacts(context.Background(), Options{HugePageBytes: c.huge})
		if err != nil {
			t.Fatal(err)
		}
		f.kvmOnce.Do(func() { f.kvmErr = c.kvm })
		i := slices.IndexFunc(rows, func(r Row) bool { return r.ID == "memory.hugepages" })
		if got := rows[i].look(f); (got.status == NotApplicable) != c.none {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestOtherKVM: if /dev/kvm exists and the CPU has neither vmx nor svm, the row reports which KVM that is, and what
// to request.
func TestOtherKVM(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"proc", "sys", "dev"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(filepath.Join(root, "dev/kvm"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := newFacts(context.Background(), Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		f.live = true
		f.kvmOnce.Do(func() { f.kvmErr = errors.New("accel kvm: no vmx or svm in /proc/cpuinfo") })
		i := slices.IndexFunc(rows, func(r Row) bool { return r.ID == "kvm.works" })
		got := rows[i].look(f)
		if got.status != Fail || strings.Contains(got.found, "modified kernels") != there || strings.Contains(got.fix, "ask the provider") != there {
			t.Errorf("/dev/kvm %v: %+v", there, got)
		}
	}
}

func TestOnly(t *testing.T) {
	r, err := Run(context.Background(), Options{Only: []string{"memory.ksm", "power"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.ID != "memory.ksm" && !strings.HasPrefix(row.ID, "power.") {
			t.Errorf("%s was not asked for", row.ID)
		}
	}
	if len(r.Rows) < 3 {
		t.Errorf("%d rows", len(r.Rows))
	}
	_, err = Run(context.Background(), Options{Only: []string{"memory.kms"}})
	var no *ErrNoRow
	if !errors.As(err, &no) || no.ID != "memory.kms" {
		t.Errorf("%v", err)
	}
	for _, root := range []string{"/nonexistent", t.TempDir(), "/etc/passwd"} {
		if _, err := Run(context.Background(), Options{Root: root}); err == nil {
			t.Errorf("%s was read", root)
		}
	}
}

// TestPage: the page of all checks is the output of go generate.
func TestPage(t *testing.T) {
	b, err := os.ReadFile("../../../docs/reference/checks.md")
	if err != nil || string(b) != Markdown() {
		t.Errorf("docs/reference/checks.md is not what go generate ./internal/host/check makes (%v)", err)
	}
}

// TestMemlockBefore: a write to a daemon's limit on locked memory contains the current limit.
func TestMemlockBefore(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/self/limits": "Max locked memory         unlimited            unlimited            bytes\n",
		"proc/77/comm":     "slurmd\n",
		"proc/77/limits":   "Max locked memory         67108864             unlimited            bytes\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := newFacts(context.Background(), Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.live = true // writes exist only for a running host
	for _, r := range Rows() {
		if r.ID != "limits.memlock" {
			continue
		}
		if got := r.writes(f); len(got) != 1 || got[0] != (Write{PID: 77, Name: "slurmd", Before: "64 MiB"}) {
			t.Errorf("%+v", got)
		}
	}
}
