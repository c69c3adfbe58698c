package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// HostShell opens a shell on this host in which MPI launchers start their ranks in the VMs of a cluster.
func HostShell(o ExecOptions, s session.Streams) (int, error) {
	r, err := state.Find(o.Cluster)
	if err != nil {
		return 0, err
	}
	env, err := hostEnvironment(r)
	if err != nil {
		return 0, err
	}
	sh := os.Getenv("SHELL")
	if sh == "" {
		sh = "/bin/sh"
	}
	if terminal.IsTerminal(s.In) {
		fmt.Fprintf(s.Err, "nearmetal: mpirun and its like in this shell put their ranks into the VMs of %s; exit leaves it\n", r.Name)
		env = append(env, prompt(filepath.Base(sh), r.Name)...)
	}
	// The terminal's signals are for the shell; this process only waits for it.
	_, stop := session.Signals()
	defer stop()
	return runHere(context.Background(), nil, []string{sh}, env, s)
}

// prompt returns the variables by which a shell shows in its prompt that it belongs to a cluster. bash sets its
// prompt from files that it reads at its start, so it is marked at the first prompt.
func prompt(shell, cluster string) []string {
	mark := "(nearmetal " + cluster + ") "
	switch shell {
	case "bash":
		return []string{`PROMPT_COMMAND=PS1="` + mark + `$PS1"; unset PROMPT_COMMAND`}
	case "sh", "dash", "ksh":
		return []string{"PS1=" + mark + "$ "}
	}
	return nil
}

// UnsetCommands returns the commands by which a shell of the user removes the variables of EnvCommands that it has.
func UnsetCommands() []string {
	var lines []string
	for _, name := range launch.Ours(os.Environ()) {
		lines = append(lines, "unset "+name+";")
	}
	return lines
}

// EnvCommands returns the commands by which a shell of the user sets the variables of HostShell.
func EnvCommands(name string) ([]string, error) {
	r, err := state.Find(name)
	if err != nil {
		return nil, err
	}
	vars, err := LaunchVariables(r, os.Environ())
	if err != nil {
		return nil, err
	}
	sort.Strings(vars)
	var lines []string
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		// The semicolon separates the commands, because `eval $(…)` without quotes joins them into one line.
		lines = append(lines, fmt.Sprintf("export %s=%s;", name, text.Shell(value)))
	}
	return append(lines, limitCommand()...), nil
}

// limitCommand returns a command that lets the programs of a shell open openFiles files, at most its hard limit;
// nothing if they already may.
func limitCommand() []string {
	var l unix.Rlimit
	// Go's runtime has raised the soft limit of this process; the shell's is its parent's.
	if unix.Prlimit(os.Getppid(), unix.RLIMIT_NOFILE, nil, &l) != nil || l.Cur >= openFiles || l.Cur >= l.Max {
		return nil
	}
	return []string{fmt.Sprintf("ulimit -Sn %d;", min(l.Max, openFiles))}
}
