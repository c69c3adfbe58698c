//go:build vsphere

package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// askPassword asks for a password at the terminal; "" where there is none.
func askPassword(whose string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", nil
	}
	defer tty.Close()
	fmt.Fprintf(tty, "password of %s: ", whose)
	b, err := term.ReadPassword(int(tty.Fd()))
	fmt.Fprintln(tty)
	return string(b), err
}
