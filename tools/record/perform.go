package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	columns, rows = 100, 30
	// patience is the timeout of a command.
	patience = 10 * time.Minute
)

// stage is a terminal with a shell in it.
type stage struct {
	keyboard *os.File
	cast     *cast
	began    time.Time
	seen     []byte      // all output
	output   chan []byte // closed at the end of the output
}

// perform types the commands, and returns the recording of the terminal.
func perform(commands []string) (*cast, error) {
	work, err := os.MkdirTemp("", "record")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	env, err := furnish(work)
	if err != nil {
		return nil, err
	}
	title := "nearmetal: the first commands"
	if out, err := exec.Command("build/nearmetal", "version", "--json").Output(); err == nil && bytes.Contains(out, []byte(`"accel": "tcg`)) {
		title += " (VMs are emulated here, which is slow)"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := &stage{cast: &cast{header: header{Version: 2, Width: columns, Height: rows, Title: title, Idle: 1.5}}, output: make(chan []byte)}
	cmd, err := s.open(ctx, work, env)
	if err != nil {
		return nil, err
	}
	defer func() {
		down := exec.Command("nearmetal", "-q", "down", "--all") // end the clusters that a failure left
		down.Env, down.Path = env, filepath.Join(work, "bin/nearmetal")
		down.Run()
		cmd.Process.Kill()
		cmd.Wait()
		s.keyboard.Close()
	}()
	if _, err := s.await(ctx, promptEnd); err != nil {
		return nil, err
	}
	for _, c := range commands {
		s.mark(c)
		if err := s.play(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
	return s.cast, nil
}

// furnish makes the directory in which the commands run, with a program called app, and returns their environment.
func furnish(work string) ([]string, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for link, to := range map[string]string{"app": "build/c/kernels/nm_cg", "bin/nearmetal": "build/nearmetal"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(work, link)), 0o755); err != nil {
			return nil, err
		}
		if err := os.Symlink(filepath.Join(here, to), filepath.Join(work, link)); err != nil {
			return nil, err
		}
	}
	inputrc := filepath.Join(work, ".inputrc")
	if err := os.WriteFile(inputrc, []byte("set enable-bracketed-paste off\n"), 0o600); err != nil {
		return nil, err
	}
	env := []string{
		"PATH=" + work + "/bin:" + os.Getenv("PATH"), "HOME=" + work, "TERM=xterm-256color", "LANG=C.UTF-8",
		"NEARMETAL_RUNTIME_DIR=" + filepath.Join(work, "run"), "INPUTRC=" + inputrc,
		"PS1=$ ", "PROMPT_COMMAND=printf '" + `\033]7777;%d\007` + "' $?", "HISTFILE=",
	}
	if os.Getuid() == 0 { // Open MPI otherwise refuses to start
		env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	}
	return env, nil
}

// open starts the shell on a new terminal, and reads its output.
func (s *stage) open(ctx context.Context, work string, env []string) (*exec.Cmd, error) {
	var err error
	if s.keyboard, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	fd := int(s.keyboard.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	if err != nil {
		return nil, err
	}
	screen, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer screen.Close()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-i")
	cmd.Dir, cmd.Env = work, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.began = time.Now()
	go func() {
		defer close(s.output)
		for {
			b := make([]byte, 4096)
			n, err := s.keyboard.Read(b)
			if n > 0 {
				s.output <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return cmd, nil
}

// promptMark matches the invisible mark that the shell writes before each prompt: the status of the command before.
var promptMark = regexp.MustCompile(`\x1b\]7777;[0-9]+\x07`)

// promptEnd matches output that ends with the shell's prompt; its group is the status of the command before. guestEnd
// matches output that ends with a prompt of a shell in a VM.
var (
	promptEnd = regexp.MustCompile(`\x1b\]7777;([0-9]+)\x07\$ $`)
	guestEnd  = regexp.MustCompile(`[#$] $`)
)

// await records output until it matches end, and returns the match's first group, if it has one.
func (s *stage) await(ctx context.Context, end *regexp.Regexp) (string, error) {
	for {
		select {
		case b, ok := <-s.output:
			if !ok {
				return "", io.ErrUnexpectedEOF
			}
			s.seen = append(s.seen, b...)
			s.cast.events = append(s.cast.events, event{time.Since(s.began).Seconds(), "o", promptMark.ReplaceAllString(string(b), "")})
		case <-ctx.Done():
			return "", fmt.Errorf("it does not end: %w", ctx.Err())
		}
		if m := end.FindSubmatch(s.seen); m != nil {
			s.seen = nil
			if len(m) > 1 {
				return string(m[1]), nil
			}
			return "", nil
		}
	}
}

func (s *stage) mark(command string) {
	s.cast.events = append(s.cast.events, event{time.Since(s.began).Seconds(), "m", command})
}

// play types a command, and the commands for a shell in a VM. nearmetal check fails if the host has faults.
func (s *stage) play(ctx context.Context, command string) error {
	if _, err := io.WriteString(s.keyboard, command+"\n"); err != nil {
		return err
	}
	if strings.HasPrefix(command, "nearmetal shell") {
		for _, line := range []string{"hostname", "exit"} {
			if _, err := s.await(ctx, guestEnd); err != nil {
				return err
			}
			if _, err := io.WriteString(s.keyboard, line+"\n"); err != nil {
				return err
			}
		}
	}
	status, err := s.await(ctx, promptEnd)
	if err == nil && status != "0" && command != "nearmetal check" {
		err = fmt.Errorf("status %s", status)
	}
	return err
}
