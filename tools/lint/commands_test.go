package main

import (
	"go/parser"
	"go/token"
	"slices"
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
