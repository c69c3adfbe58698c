package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Hidden:  true,
		GroupID: groupSelf,
		Short:   "Write nearmetal's manual pages to a directory",
		Long:    "Writes a manual page (section 1) for nearmetal and for each of its commands to a directory, which is made if need be.",
		Example: "  nearmetal man /usr/local/share/man/man1",
		Args:    exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("cannot make the directory of the manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			nameValues(root)
			header := &doc.GenManHeader{Section: "1", Source: "nearmetal " + version, Manual: "nearmetal", Date: sourceDate()}
			return doc.GenManTree(root, header, args[0])
		},
	}
}

// nameValues makes the pages show what a flag takes (--memory=SIZE) where cobra
// shows its default, which the texts tell.
func nameValues(c *cobra.Command) {
	name := func(f *pflag.Flag) {
		if f.Value.Type() != "bool" {
			f.DefValue, _ = pflag.UnquoteUsage(f)
		}
	}
	c.Flags().VisitAll(name)
	c.PersistentFlags().VisitAll(name)
	for _, sub := range c.Commands() {
		nameValues(sub)
	}
}

// sourceDate gives the time of the commit, so that the same source gives the same
// pages; nil, which is today, where it is not known.
func sourceDate() *time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if date, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return &date
			}
		}
	}
	return nil
}
