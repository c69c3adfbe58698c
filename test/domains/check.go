package domains

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/explain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
)

// schema is libvirt's own of domains; its library's package has it.
const schema = "/usr/share/libvirt/schemas/domain.rng"

// missing says what Check needs and this machine does not have; "": nothing.
func missing() string {
	for _, program := range []string{"xmllint", "virsh"} {
		if _, err := exec.LookPath(program); err != nil {
			return "no " + program + ": sh scripts/install.sh libvirt"
		}
	}
	if _, err := os.Stat(schema); err != nil {
		return "no " + schema + ": sh scripts/install.sh libvirt"
	}
	return ""
}

// pair is a domain and what it became.
type pair struct {
	seed         int64
	host         *topology.Host
	was, is      string
	before, then *explain.Report
}

// Machines are those of test/topology, at dir, that domains are made for.
func Machines(t *testing.T, dir string, names ...string) []*topology.Host {
	t.Helper()
	var list []*topology.Host
	for _, name := range names {
		h, err := topology.Open(filepath.Join(dir, name+".machine"))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
	return list
}

// Check explains and fixes n random domains, from seed on, on some machines. It fails unless the XML of --fix is valid
// by libvirt's schema and can be defined by its test driver, if the original is and can; unless it reads again, with no row
// worse than before and nothing left that has lines; and unless placement is of one kind and comments stay.
func Check(t *testing.T, machines []*topology.Host, seed int64, n int) {
	t.Helper()
	if what := missing(); what != "" {
		t.Skip(what)
	}
	t.Logf("seeds %d to %d", seed, seed+int64(n)-1)
	var list []pair
	refused := map[string]int{}
	for s := seed; s < seed+int64(n); s++ {
		r := rand.New(rand.NewSource(s))
		h := machines[r.Intn(len(machines))]
		p := pair{seed: s, host: h, was: Random(r, h, fmt.Sprintf("d%d", s))}
		switch done, why := p.fix(t); {
		case done:
			list = append(list, p)
		case why != "":
			refused[why]++
		}
	}
	dir := t.TempDir()
	was, is := write(t, dir, "was", list), write(t, dir, "is", list)
	valid, still := validate(was), validate(is)
	defined, again := define(was), define(is)
	good, taken := 0, 0
	for i, p := range list {
		if valid[was[i]] == "" {
			good++
			if why := still[is[i]]; why != "" {
				t.Errorf("seed %d: not valid any more: %s\n%s\n%s", p.seed, why, p.was, p.is)
			}
		}
		if defined[was[i]] == "" {
			taken++
			if why := again[is[i]]; why != "" {
				t.Errorf("seed %d: libvirt takes it no more: %s\n%s\n%s", p.seed, why, p.was, p.is)
			}
		}
	}
	for why, n := range refused {
		t.Logf("%d refused: %s", n, why)
	}
	t.Logf("%d of %d domains were fixed; of these %d were valid, and %d taken by libvirt", len(list), n, good, taken)
	if len(list) < n*9/10 || good < len(list)*8/10 || taken < len(list)*8/10 {
		t.Errorf("of %d domains %d were fixed, %d valid and %d taken: too few to show anything\n%v\n%v", n, len(list), good, taken, valid, defined)
	}
}

// fix explains and fixes the domain. It returns whether that was done, or why it was refused.
func (p *pair) fix(t *testing.T) (done bool, why string) {
	t.Helper()
	fail := func(format string, a ...any) {
		t.Helper()
		t.Errorf("seed %d on %s: %s\n%s\n%s", p.seed, p.host.Name, fmt.Sprintf(format, a...), p.was, p.is)
	}
	d, err := explain.Read(strings.NewReader(p.was))
	if err != nil {
		fail("%v", err)
		return false, ""
	}
	if len(d.Lost) > 0 {
		fail("not known: %v", d.Lost)
	}
	if p.before, err = explain.Explain(d, p.host); err != nil {
		fail("%v", err)
		return false, ""
	}
	text, did, err := explain.Fixed(d, p.host)
	if err != nil {
		return false, err.Error()
	}
	p.is = text
	again, err := explain.Read(strings.NewReader(text))
	if err != nil {
		fail("fixed: %v", err)
		return false, ""
	}
	if p.then, err = explain.Explain(again, p.host); err != nil {
		fail("fixed: %v", err)
		return false, ""
	}
	for i, row := range p.then.Rows {
		if old := p.before.Rows[i]; rank(row.Status) > rank(old.Status) {
			fail("%s was %s (%s), and is %s: %s", row.ID, old.Status, old.Found, row.Status, row.Found)
		}
		if slices.Contains(did, row.ID) && rank(row.Status) > 0 {
			fail("%s is said to be fixed: %s", row.ID, row.Found)
		}
		if rank(row.Status) > 0 && len(row.Lines) > 0 {
			fail("%s has lines left: %s %v", row.ID, row.Found, row.Lines)
		}
	}
	if twice, _, err := explain.Fixed(again, p.host); err != nil || twice != text {
		fail("fixed twice it is another: %v\n%s", err, twice)
	}
	p.mixed(fail)
	for _, c := range regexp.MustCompile(`<!-- kept: [^>]*-->`).FindAllString(p.was, -1) {
		if !strings.Contains(text, c) {
			fail("lost %s", c)
		}
	}
	return true, ""
}

// mixed fails where the fixed domain has placement of two kinds.
func (p *pair) mixed(fail func(string, ...any)) {
	placement := regexp.MustCompile(`(?s)<(vcpupin|emulatorpin|iothreadpin|memory mode|memnode) [^>]*>`)
	if slices.Equal(placement.FindAllString(p.is, -1), placement.FindAllString(p.was, -1)) {
		return
	}
	for _, row := range p.then.Rows {
		if row.ID == "memory.bound" && row.Status == check.Fail && !strings.Contains(row.Found, "bound to no node") || row.ID == "cpu.node" && row.Status == check.Fail {
			fail("mixed: %s: %s", row.ID, row.Found)
		}
	}
	pins := func(text string) []string { return regexp.MustCompile(`<vcpupin [^>]*>`).FindAllString(text, -1) }
	if a, b := pins(p.was), pins(p.is); len(a) > 0 && !slices.Equal(a, b) {
		if strings.Contains(p.is, "emulatorpin") && part(p.is, "emulatorpin") == part(p.was, "emulatorpin") && row(p.then, "cpu.emulator").Status == check.Warn {
			fail("mixed: new pins, and the old emulatorpin")
		}
	}
}

func row(r *explain.Report, id string) explain.Row {
	return r.Rows[slices.IndexFunc(r.Rows, func(x explain.Row) bool { return x.ID == id })]
}

// part is the text of some elements.
func part(text string, names ...string) string {
	s := ""
	for _, n := range names {
		s += regexp.MustCompile(`(?s)<` + n + `[ >].*?(</` + n + `>|/>)`).FindString(text)
	}
	return s
}

// rank orders statuses: what is larger is worse.
func rank(s check.Status) int {
	return slices.Index([]check.Status{check.Unknown, check.Warn, check.Fail}, s)
}

func write(t *testing.T, dir, kind string, list []pair) []string {
	t.Helper()
	var files []string
	for _, p := range list {
		text := p.was
		if kind == "is" {
			text = p.is
		}
		file := filepath.Join(dir, fmt.Sprintf("%s-%d.xml", kind, p.seed))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// validate checks files by libvirt's schema. It returns what is wrong with each.
func validate(files []string) map[string]string {
	out, _ := exec.Command("xmllint", append([]string{"--noout", "--relaxng", schema}, files...)...).CombinedOutput()
	wrong := map[string]string{}
	for _, f := range files {
		if !bytes.Contains(out, []byte(f+" validates\n")) {
			wrong[f] = about(string(out), f)
		}
	}
	return wrong
}

// define defines domains with libvirt's test driver. It returns what is wrong with each.
func define(files []string) map[string]string {
	var script strings.Builder
	for _, f := range files {
		fmt.Fprintf(&script, "define %s\n", f)
	}
	cmd := exec.Command("virsh", "-c", "test:///default")
	cmd.Stdin = strings.NewReader(script.String())
	out, _ := cmd.CombinedOutput()
	wrong := map[string]string{}
	for _, f := range files {
		if !bytes.Contains(out, []byte("defined from "+f+"\n")) {
			wrong[f] = about(string(out), f)
		}
	}
	return wrong
}

// about is what a program's output says of a file, and the line after it.
func about(out, file string) string {
	lines := strings.Split(out, "\n")
	var said []string
	for i, l := range lines {
		if strings.Contains(l, file) && !strings.HasPrefix(l, "virsh #") {
			said = append(said, lines[i:min(i+2, len(lines))]...)
		}
	}
	if len(said) == 0 {
		return "nothing is said of it: " + out[:min(len(out), 300)]
	}
	return strings.Join(said[:min(len(said), 8)], "; ")
}
