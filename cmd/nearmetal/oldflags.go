package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// renamed makes cmd and its subcommands accept --old as --name, because flags had other names in earlier releases.
func renamed(cmd *cobra.Command, old, name string) {
	cmd.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}
