package launch

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// Bounds of a remote shell's command line. Linux itself allows 2 MiB for all arguments.
const (
	rshWords = 1 << 16
	rshBytes = 2 << 20
)

// ssh's options that have a value, and those that do not (ssh(1) of OpenSSH 9; rsh has a subset).
const (
	sshValues = "BbcDEeFIiJLlmOoPpQRSWw"
	sshFlags  = "46AaCfGgKkMNnqsTtVvXxYy"
)

var targetName = lazyregexp.New(`^[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?$`)

// RshArgs parses the arguments that launchers pass to a remote shell (`-x HOST "PROXY" --control-port …`, `HOST orted
// …`), without the program's name. It returns the host and the words of the command, which RshCommand joins. ssh's
// options are skipped, before the host and directly after it. A user before an @ is also skipped: commands run as the
// caller. The error is one line for the user.
func RshArgs(args []string) (host string, command []string, err error) {
	if len(args) > rshWords {
		return "", nil, fmt.Errorf("rsh: %d arguments are too many", len(args))
	}
	size := 0
	for _, a := range args {
		if strings.IndexByte(a, 0) >= 0 {
			return "", nil, errors.New("rsh: an argument has a zero byte")
		}
		size += len(a) + 1
	}
	if size > rshBytes {
		return "", nil, fmt.Errorf("rsh: %d bytes of arguments are too many", size)
	}
	if args, err = skipOptions(args); err != nil {
		return "", nil, err
	}
	if len(args) == 0 {
		return "", nil, errors.New("rsh: no host: nearmetal rsh [ssh's options] HOST COMMAND")
	}
	host = args[0]
	if _, after, ok := strings.Cut(host, "@"); ok {
		host = after
	}
	if !targetName().MatchString(host) {
		return "", nil, fmt.Errorf("rsh: %q is not a host", args[0])
	}
	if args, err = skipOptions(args[1:]); err != nil {
		return "", nil, err
	}
	if len(args) == 0 {
		return "", nil, fmt.Errorf("rsh: no command for %s", host)
	}
	return host, args, nil
}

// skipOptions returns args from the first word that is not an option. As in getopt, flags may be combined and a value
// may be in the same word: -xl USER, -oBatchMode=yes.
func skipOptions(args []string) ([]string, error) {
	for len(args) > 0 {
		a := args[0]
		if len(a) < 2 || a[0] != '-' {
			return args, nil
		}
		args = args[1:]
		if a == "--" {
			return args, nil
		}
		for i := 1; i < len(a); i++ {
			if strings.IndexByte(sshFlags, a[i]) >= 0 {
				continue
			}
			if strings.IndexByte(sshValues, a[i]) < 0 {
				return nil, fmt.Errorf("rsh: unknown option %q", a)
			}
			if i == len(a)-1 {
				if len(args) == 0 {
					return nil, fmt.Errorf("rsh: option -%c wants a value", a[i])
				}
				args = args[1:]
			}
			break
		}
	}
	return args, nil
}

// RshCommand returns the command that runs the words of a remote shell's command in the VM: the words joined by
// blanks, run by a shell, as sshd does. The shell is sh, or the C shell if that is the user's own (loginShell, from
// the password file), because Open MPI then writes its commands for it.
func RshCommand(words []string, loginShell string) []string {
	shell := "/bin/sh"
	if base := filepath.Base(loginShell); filepath.IsAbs(loginShell) && (base == "csh" || base == "tcsh") {
		shell = loginShell
	}
	return []string{shell, "-c", strings.Join(words, " ")}
}
