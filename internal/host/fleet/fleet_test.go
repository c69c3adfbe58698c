package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"nearmetal/internal/host/check"
)

// report returns a report with checks, "ID status found" each.
func report(host string, rows ...string) *check.Report {
	r := &check.Report{Version: check.Version, Host: host, CPU: "cpu", Kernel: "6.1"}
	for _, row := range rows {
		f := strings.SplitN(row, " ", 3)
		r.Rows = append(r.Rows, check.Result{ID: f[0], Status: check.Status(f[1]), Found: f[2]})
	}
	if err := r.Sane(); err != nil {
		panic(err)
	}
	return r
}

// TestCompare: of hosts that differ, the one that differs most from the others comes first.
func TestCompare(t *testing.T) {
	good := []string{"power.governor ok performance", "memory.ksm ok 0", "rdma.guid ok 1:1"}
	c := Compare([]Host{
		{Name: "n1", Report: report("n1", good...)},
		{Name: "n2", Report: report("n2", "power.governor warn powersave", "memory.ksm ok 0", "rdma.guid ok 2:2")},
		{Name: "n3", Report: report("n3", "power.governor warn powersave", "memory.ksm warn 1", "rdma.guid fail 0:0")},
		{Name: "n4", Report: report("n4", good...)},
		{Name: "n5", Report: report("n5", good...)},
		{Name: "n6", Error: "no answer in time"},
	})
	want := []Odd{{"n3", []string{"power.governor", "memory.ksm", "rdma.guid"}}, {"n2", []string{"power.governor"}}}
	if !reflect.DeepEqual(c.Odd, want) {
		t.Errorf("%+v", c.Odd)
	}
	if len(c.Differences) != 3 || !reflect.DeepEqual(c.Differences[0].Values[0].Hosts, []string{"n1", "n4", "n5"}) {
		t.Errorf("%+v", c.Differences)
	}
	if !c.Failed() {
		t.Error("not failed")
	}
	// Of two hosts the worse is the odd one; GUIDs always differ and are not compared.
	c = Compare([]Host{{Name: "a", Report: report("a", "memory.ksm warn 1", "rdma.guid ok 1:1")}, {Name: "b", Report: report("b", "memory.ksm ok 0", "rdma.guid ok 2:2")}})
	if len(c.Odd) != 1 || c.Odd[0].Host != "a" || len(c.Differences) != 1 {
		t.Errorf("%+v", c)
	}
	c = Compare([]Host{{Name: "a", Report: report("a", good...)}, {Name: "b", Report: report("b", good...)}})
	if c.Failed() || len(c.Odd) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestReadList(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hosts.txt")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("n1\n# all\n n2 # the new one\nn1\nadmin@n3.cluster\nn4.json\n/x/n5.json\n")
	list, err := ReadList(file)
	want := []Target{{Host: "n1"}, {Host: "n2"}, {Host: "admin@n3.cluster"}, {File: filepath.Join(dir, "n4.json")}, {File: "/x/n5.json"}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range []string{"-oProxyCommand=x", "n1,n2", "$(reboot)", "a b", "", "x@-y", strings.Repeat("n", 400)} {
		write("\n" + bad + "\n")
		if list, err := ReadList(file); err == nil {
			t.Errorf("%q was taken: %+v", bad, list)
		} else if bad != "" && !strings.Contains(err.Error(), file+":2:") {
			t.Errorf("%v: no line", err)
		}
	}
	if _, err := ReadList(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--json") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestGather: reports are collected over ssh, over pdsh and from files; a failing host is reported with the reason.
// ssh and pdsh are scripts here that answer as those programs do.
func TestGather(t *testing.T) {
	dir := t.TempDir()
	b, err := json.Marshal(report("x", "memory.ksm ok 0"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"report.json": string(b),
		"bad.json":    "{",
		"newer.json":  `{"version":99}`,
		"ssh": fmt.Sprintf(`#!/bin/sh
while [ "$1" != -- ]; do shift; done; shift
echo "$@" >>%[1]s/asked
case $2-$3-$4 in nearmetal-check---json) ;; *) exit 9 ;; esac
case $1 in n2) echo "Permission denied (publickey)." >&2; exit 255 ;; n3) cat %[1]s/report.json; exit 1 ;; esac
cat %[1]s/report.json
`, dir),
		"pdsh": fmt.Sprintf(`#!/bin/sh
echo "n1: $(cat %[1]s/report.json)"
echo "n2: bash: nearmetal: command not found" >&2
echo "stranger: {}"
exit 0
`, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	list := []Target{{Host: "n1"}, {File: dir + "/report.json"}, {Host: "n2"}, {Host: "n3"}, {File: dir + "/bad.json"}, {File: dir + "/newer.json"}, {File: dir + "/none.json"}}
	n := 0
	hosts := Gather(context.Background(), list, Options{Via: "ssh", Profile: check.VMHost, Done: func(int) { n++ }})
	var got []string
	for _, h := range hosts {
		got = append(got, fmt.Sprintf("%s %v", h.Name, h.Report != nil))
	}
	if s := strings.Join(got, ", "); s != "n1 true, report true, n2 false, n3 true, bad false, newer false, none false" || n != len(list) {
		t.Errorf("%s; %d done", s, n)
	}
	if !strings.Contains(hosts[2].Error, "Permission denied") || !strings.Contains(hosts[5].Error, "version 99") {
		t.Errorf("%q, %q", hosts[2].Error, hosts[5].Error)
	}
	hosts = Gather(context.Background(), []Target{{Host: "n1"}, {Host: "n2"}, {Host: "n4"}}, Options{Via: "pdsh"})
	if hosts[0].Report == nil || !strings.Contains(hosts[1].Error, "command not found") || hosts[2].Error == "" {
		t.Errorf("%+v", hosts)
	}
}

func FuzzList(f *testing.F) {
	f.Add("n1\nn2 # x\na.json\n")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseList(strings.NewReader(s), "/d")
		if err != nil {
			return
		}
		for _, x := range list {
			if x.File == "" && (x.Host == "" || x.Host[0] == '-' || strings.ContainsAny(x.Host, " ,;'\"$`\n|&<>()")) {
				t.Errorf("%+v of %q", x, s)
			}
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"rows":[{"id":"a.b","status":"ok","found":"x"}]}`), []byte("n1: {}\nn2: x\n"))
	f.Fuzz(func(t *testing.T, b, lines []byte) {
		if r, err := parseReport(b); err == nil && r != nil {
			Compare([]Host{{Name: "a", Report: r}, {Name: "b", Report: r}})
		}
		byHost(lines, map[string]int{"n1": 0})
	})
}
