package fleet

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"nearmetal/internal/text"
)

// Shell runs commands on a host by ssh, whose own configuration has the login.
type Shell struct{ Host string }

// shellBound bounds a command: the installation of packages lasts minutes.
const shellBound = 10 * time.Minute

// Command runs a program with its arguments, and returns its standard output. The error is one line: ssh's own
// message if ssh did not reach the host, else the program's last line.
func (s Shell) Command(ctx context.Context, name string, args ...string) ([]byte, error) {
	return s.Run(ctx, text.Shell(append([]string{name}, args...)...))
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
	said := text.LastLine(errs.String())
	if said == "" {
		said = text.LastLine(out.String())
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, errors.New("no answer in time")
	case errors.As(err, &exit) && exit.ExitCode() == 127:
		return nil, errors.New("not installed")
	case said != "":
		return nil, errors.New(said)
	}
	return nil, err
}
