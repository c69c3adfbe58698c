package fleet

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"

	"nearmetal/internal/terminal"
)

// Shell runs commands on a host by ssh, whose own configuration says how to log in.
type Shell struct{ Host string }

// shellBound bounds a command: packages take minutes to install.
const shellBound = 10 * time.Minute

// Command runs a program with its arguments, and returns its standard output. The error is one line: ssh's own words where the host was not
// reached, else the program's last.
func (s Shell) Command(ctx context.Context, name string, args ...string) ([]byte, error) {
	words := []string{quote(name)}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return s.Run(ctx, strings.Join(words, " "))
}

// Run is Command for a line of the host's shell.
func (s Shell) Run(ctx context.Context, line string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, shellBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", s.Host, line)
	cmd.WaitDelay = time.Second
	var out, errs bounded
	out.max, errs.max = reportMax, 4096
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	text := lastLine(errs.String())
	if text == "" {
		text = lastLine(out.String())
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, errors.New("no answer in time")
	case errors.As(err, &exit) && exit.ExitCode() == 127:
		return nil, errors.New("not installed")
	case text != "":
		return nil, errors.New(terminal.Clean(text))
	}
	return nil, err
}

// quote makes one word of a shell's of text.
func quote(text string) string {
	if text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
