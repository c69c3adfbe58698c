package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nearmetal/internal/spec"
)

// noneEmpty refuses empty arguments, which unset variables leave, before check sees them: no command may mistake one
// for an omitted argument. Arguments of a program that is run may be empty.
func noneEmpty(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		words := args
		if runsPrograms[cmd.CommandPath()] && len(args) > 1 {
			words = args[:1]
		}
		if i := slices.Index(words, ""); i >= 0 {
			return usagef("%s: argument %d is empty", cmd.Name(), i+1)
		}
		var err error
		cmd.Flags().Visit(func(f *pflag.Flag) {
			list, ok := f.Value.(pflag.SliceValue)
			if ok && (len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")) || f.Value.Type() == "string" && f.Value.String() == "" {
				err = usagef("--%s is empty: leave it out, or name something", f.Name)
			}
		})
		if err != nil || check == nil {
			return err
		}
		return check(cmd, args)
	}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, but was given %q", cmd.Name(), args[0])
	}
	return nil
}

// exactArgs requires one argument for each name, such as "DIR".
func exactArgs(names ...string) cobra.PositionalArgs {
	return rangeArgs(len(names), names...)
}

// rangeArgs requires at least least arguments and at most one for each name.
func rangeArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s needs %s", cmd.Name(), strings.Join(names[len(args):least], " and "))
		case len(args) > len(names):
			return usagef("%s has one argument too many: %q", cmd.Name(), args[len(names)])
		}
		return nil
	}
}

// atLeastOne requires one argument or more; name describes them.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs at least one %s", cmd.Name(), name)
		}
		return nil
	}
}

// oneOf requires one argument, a word of the list; name describes it.
func oneOf(name string, words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s needs one %s: %s", cmd.Name(), name, strings.Join(words, ", "))
		}
		for _, w := range words {
			if args[0] == w {
				return nil
			}
		}
		if near := spec.Nearest(args[0], words); near != "" {
			return usagef("%q is not a %s: did you mean %s?", args[0], name, near)
		}
		return usagef("%q is not a %s: use %s", args[0], name, strings.Join(words, ", "))
	}
}
