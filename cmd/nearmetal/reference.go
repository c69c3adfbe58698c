package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

//go:generate go run . reference ../../docs/reference/commands.md

func newReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "reference FILE",
		Hidden:  true,
		GroupID: groupSelf,
		Short:   "Write the reference of nearmetal's commands, docs/reference/commands.md",
		Long:    "Writes a page of Markdown with every command, its flags and its examples, and the schemas of --json to the directory json beside it.",
		Example: "  nearmetal reference docs/reference/commands.md",
		Args:    exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var page bytes.Buffer
			writeReference(&page, cmd.Root())
			if err := os.WriteFile(args[0], page.Bytes(), 0o644); err != nil {
				return fmt.Errorf("cannot write the reference: %w", err)
			}
			return writeForms(filepath.Join(filepath.Dir(args[0]), "json"))
		},
	}
}

// writeReference writes the page of all commands.
func writeReference(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, `<!-- Generated from the commands by "make docs"; do not edit. -->
# Commands

%s

Errors are one line on standard error that begins with "nearmetal:".

Environment: NO_COLOR switches colours off, and so does TERM=dumb, which also
replaces live progress by plain lines. NEARMETAL_DEBUG=1 shows where an internal
error arose.

What --json prints has a schema in the directory json beside this page. Fields are added to it; none is removed
or changed before the next major version.

`, root.Long)
	var walk func(c *cobra.Command, visit func(*cobra.Command))
	walk = func(c *cobra.Command, visit func(*cobra.Command)) {
		if c != root && !c.HasSubCommands() {
			visit(c)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub, visit)
			}
		}
	}
	walk(root, func(c *cobra.Command) {
		anchor := strings.ReplaceAll(c.CommandPath(), " ", "-")
		fmt.Fprintf(w, "- [%s](#%s): %s\n", c.CommandPath(), anchor, lowerFirst(c.Short))
	})
	fmt.Fprintf(w, "\nFlags of every command:\n\n```\n%s```\n", flagUsages(root.PersistentFlags()))
	walk(root, func(c *cobra.Command) { writeCommand(w, c) })
}

func writeCommand(w io.Writer, c *cobra.Command) {
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(w, "\n## %s\n\n```\n%s\n```\n\n%s\n", c.CommandPath(), c.UseLine(), long)
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n\n```sh\n%s\n```\n", unindent(c.Example))
	}
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n\n```\n%s```\n", flagUsages(c.NonInheritedFlags()))
	}
}

// unindent removes the two spaces before each line of examples in help.
func unindent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func lowerFirst(s string) string {
	if s == "" || strings.HasPrefix(s, "MPI") {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
