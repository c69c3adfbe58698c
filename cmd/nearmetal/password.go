//go:build vsphere

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// askPassword asks at the terminal, without echo; it returns "" without a terminal. A signal ends the program, and
// leaves the terminal in its original state.
func askPassword(whose string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", nil
	}
	defer tty.Close()
	fd := int(tty.Fd())
	was, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	defer close(done)
	go func() {
		select {
		case s := <-signals:
			term.Restore(fd, was)
			fmt.Fprintln(tty)
			os.Exit(128 + int(s.(syscall.Signal)))
		case <-done:
		}
	}()
	fmt.Fprintf(tty, "password of %s: ", whose)
	b, err := term.ReadPassword(fd)
	fmt.Fprintln(tty)
	return string(b), err
}
