package carry

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/sockpair"
)

// Run starts the agent's program as a process of this VM, whose channel is conn, and returns when either has ended.
// before are words that precede its command line, for tests; the program is then descriptor 4.
func Run(ctx context.Context, program []byte, name string, conn net.Conn, before ...string) error {
	defer conn.Close()
	fd, err := unix.MemfdCreate("nearmetal-agent", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "nearmetal-agent")
	defer file.Close()
	if _, err := file.Write(program); err != nil {
		return err
	}
	ours, theirs, err := sockpair.Conn("channel of the agent")
	if err != nil {
		return err
	}
	defer ours.Close()
	args := append(before, "/proc/self/fd/4", "--serve", "3", "--no-init", "--name", name, "--socket", "/run/nearmetal/agent.sock")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.ExtraFiles = []*os.File{theirs, file}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	ended := make(chan struct{}, 2)
	go func() { io.Copy(ours, conn); ended <- struct{}{} }()
	go func() { io.Copy(conn, ours); ended <- struct{}{} }()
	<-ended
	// The agent and the programs it runs end with its channel.
	ours.Close()
	conn.Close()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 0 {
		return nil
	}
	return err
}
