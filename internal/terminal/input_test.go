package terminal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A job in the background of a terminal that reads its input is not stopped, and gets the typed input once it is in the
// foreground. The test's own process is the keyboard, its first child the shell, whose terminal it is, and the second
// child the job.
func TestInputInBackground(t *testing.T) {
	const role = "NEARMETAL_TEST_INPUT"
	switch os.Getenv(role) {
	case "shell":
		os.Exit(inputShell(role + "=job"))
	case "job":
		waiting := os.NewFile(3, "waiting")
		in := Input(os.Stdin)
		if i, ok := in.(*input); ok {
			i.wait = func() { waiting.Write([]byte(".")); time.Sleep(10 * time.Millisecond) }
		}
		line, err := bufio.NewReader(in).ReadString('\n')
		fmt.Printf("job: %q %v\n", line, err)
		os.Exit(0)
	}
	keyboard, screen := openTerminal(t, 80)
	if _, err := keyboard.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInputInBackground$")
	cmd.Env = append(os.Environ(), role+"=shell")
	cmd.Stdin = screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `job: "typed\n" <nil>`) {
		t.Errorf("%v: %s", err, out)
	}
}

// inputShell starts the job in the background, waits until it blocks there, and brings it to the foreground.
func inputShell(role string) int {
	signal.Ignore(unix.SIGTTOU)
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInputInBackground$")
	cmd.Env = append(os.Environ(), role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	ended := make(chan unix.WaitStatus, 2)
	go func() {
		for {
			var st unix.WaitStatus
			if _, err := unix.Wait4(cmd.Process.Pid, &st, unix.WUNTRACED, nil); err != nil {
				return
			}
			ended <- st
		}
	}()
	waits := make(chan bool, 1)
	go func() {
		r.Read(make([]byte, 1))
		waits <- true
	}()
	select {
	case st := <-ended:
		fmt.Printf("the job in the background: stopped %v, status %#x\n", st.Stopped(), st)
		cmd.Process.Kill()
		return 1
	case <-waits:
	}
	if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, cmd.Process.Pid); err != nil {
		panic(err)
	}
	if st := <-ended; !st.Exited() {
		fmt.Printf("the job in the foreground: %#x\n", st)
		cmd.Process.Kill()
		return 1
	}
	return 0
}
