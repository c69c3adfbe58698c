// Command record types the commands of the section "A cluster that stays" of docs/start.md into a shell on a separate
// terminal, and records the session: docs/first-commands.cast (asciicast, version 2) and its picture,
// docs/first-commands.svg. Run it from the repository's root after a build: `make recording`.
package main

import (
	"fmt"
	"os"
)

// The written files, relative to the repository's root.
const (
	page     = "docs/start.md"
	section  = "## A cluster that stays"
	castFile = "docs/first-commands.cast"
	picture  = "docs/first-commands.svg"
)

func main() {
	if err := record(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record() error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	commands, err := commandsOf(string(text), section)
	if err != nil {
		return err
	}
	c, err := perform(commands)
	if err != nil {
		return err
	}
	b, err := c.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(castFile, b, 0o644); err != nil {
		return err
	}
	return os.WriteFile(picture, c.svg(), 0o644)
}
