package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
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
			// The date is left to the package: the same source gives the same pages.
			date := time.Unix(0, 0).UTC()
			header := &doc.GenManHeader{Section: "1", Source: "nearmetal " + version, Manual: "nearmetal", Date: &date}
			return doc.GenManTree(root, header, args[0])
		},
	}
}
