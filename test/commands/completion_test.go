package commands

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What each shell offers, or makes of a line, after its tab key: by its own engine and the script that it gets.
func TestCompletionInShells(t *testing.T) {
	lab(t)
	up(t, "demo", 2)
	up(t, "other", 1)
	bin := filepath.Dir(program)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HOME", t.TempDir())
	t.Run("program", func(t *testing.T) {
		for line, want := range map[string]string{
			"exec":         "demo\t2 VMs, ready other\t1 VM, ready :4",
			"exec demo":    "demo\t2 VMs, ready other\t1 VM, ready demo/vm0 demo/vm1 :4",
			"exec demo/":   "demo/vm0 demo/vm1 :4",
			"rename":       "demo\t2 VMs, ready other\t1 VM, ready :4",
			"cp d":         "demo/ other/ :2",
			"cp demo/":     "demo/vm0: demo/vm1: :2",
			"cp ./x demo/": "demo/vm0: demo/vm1: :2",
			"cp ./x":       ":0",
			"cp a b c":     ":4",
			"check --vm d": "demo\t2 VMs, ready other\t1 VM, ready :4",
			"ps none/":     ":4",
		} {
			args := strings.Fields(line)
			if len(args) == 1 {
				args = append(args, "")
			}
			out, _, code := answer(t, append([]string{"__complete"}, args...)...)
			if got := strings.Join(strings.Split(strings.TrimSpace(out), "\n"), " "); code != 0 || got != want {
				t.Errorf("%s: %d, %q, want %q", line, code, got, want)
			}
		}
	})
	t.Run("fish", func(t *testing.T) {
		for line, want := range map[string]string{
			"nearmetal exec d":     "demo\t2 VMs, ready\n",
			"nearmetal shell ":     "demo\t2 VMs, ready\nother\t1 VM, ready\n",
			"nearmetal cp demo/v":  "demo/vm0:\ndemo/vm1:\n",
			"nearmetal rename oth": "other\t1 VM, ready\n",
		} {
			if got := shell(t, "fish", "--no-config", "-c", `nearmetal completion fish | source; complete -C "`+line+`"`); got != want {
				t.Errorf("%s: %q, want %q", line, got, want)
			}
		}
	})
	t.Run("zsh", func(t *testing.T) {
		for line, want := range map[string]string{
			"exec d\t": "exec demo", "down ot\t": "down other", "ps demo/vm0\t": "ps demo/vm0", "cp other/\tx y": "cp other/vm0:x y",
		} {
			// What is typed is echoed, and so is no word that is waited for. A terminal with a zsh in it, whose nearmetal says how it was called once the line is entered.
			got := shell(t, "zsh", "-f", "-c", `
				zmodload zsh/zpty
				zpty z 'zsh -f -i'
				zpty -w z 'autoload -U compinit; compinit -u -D; source <(nearmetal completion zsh); compdef _nearmetal nearmetal'
				zpty -w z 'nearmetal() { [[ $1 == __complete* ]] && command nearmetal "$@" || print -r -- "CAL""LED@$*@" }; print REA\DY'
				zpty -r z text '*READY*'
				zpty -w z "$1"
				zpty -r z text '*CALLED@*@*'
				print -r -- "${${text##*CALLED@}%@*}"
				zpty -d z`, "zsh", "nearmetal "+line)
			if strings.TrimSpace(got) != want {
				t.Errorf("%q: %q, want %q", line, got, want)
			}
		}
	})
	t.Run("bash", func(t *testing.T) {
		const library = "/usr/share/bash-completion/bash_completion"
		if _, err := os.Stat(library); err != nil {
			t.Skip(err)
		}
		got := shell(t, "bash", "--norc", "-c", `. `+library+`; . <(nearmetal completion bash)
			COMP_WORDS=(nearmetal exec d); COMP_CWORD=2; COMP_LINE="nearmetal exec d"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9
			compopt() { :; }
			__start_nearmetal; printf '%s\n' "${COMPREPLY[@]}"`)
		if strings.TrimSpace(got) != "demo" {
			t.Errorf("%q", got)
		}
	})
}

// shell runs a shell and returns its output; the test is left out where there is none.
func shell(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v: %s", name, err, errs.String())
	}
	return string(out)
}
