package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestCommandFiles(t *testing.T) {
	got := misnamed(map[string][]string{
		"root":      {"nearmetal"},
		"bench":     {"bench"},
		"bench_run": {"run"},
		"check":     {"check"},
		"check_fix": nil,
		"checkvm":   nil,
		"flags":     nil,
		"up":        {"supervise"},
		"flags_set": nil,
	})
	want := []string{
		"cmd/nearmetal/checkvm.go: its name begins with the command check: name it check_vm.go",
		"cmd/nearmetal/flags_set.go: flags.go defines no command flags: name the file after its command",
		"cmd/nearmetal/up.go defines the command supervise: name the file after it, or COMMAND_supervise.go after the command above",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCommandNames(t *testing.T) {
	const src = `package main
var a = &cobra.Command{Use: "slurm-boot [flags] -- REQUEST", Short: "x"}
var b = other{Used: "run"}`
	file, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := commandNames(file); !slices.Equal(got, []string{"slurmboot"}) {
		t.Errorf("got %q", got)
	}
}

// A long function is a fault unless it has flags or prints.
func TestLongLogic(t *testing.T) {
	long := strings.Repeat("\tx++\n", logicMax)
	src := "package main\nfunc (f *flags) decide(x int) error {\n" + long + "}\nfunc show(w io.Writer) {\n" + long + "}\n" +
		"func newCommand() *cobra.Command {\n" + long + "}\nfunc short() {\n" + long[:len(long)-10] + "}\n"
	got, err := longLogic("x.go", []byte(src))
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "cmd/nearmetal/x.go: decide has 32 lines") {
		t.Errorf("%q, %v", got, err)
	}
}
