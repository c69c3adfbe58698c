package main

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/wholefile"
)

// outputFlags choose the format and the file of a command's output. All commands with several formats have the same
// flags.
type outputFlags struct {
	file, format, svg *string
	json              *bool
	formats           []string
}

// addOutputFlags adds -o, --format and --json to cmd, whose default is the first format; usage is the text of --format.
// The older --svg FILE writes a picture in addition.
func addOutputFlags(cmd *cobra.Command, formats []string, usage string) *outputFlags {
	o := &outputFlags{formats: formats, json: addJSONFlag(cmd)}
	o.file = cmd.Flags().StringP("output", "o", "", "write to `FILE` instead of standard output; its ending says the format where --format does not")
	o.format = cmd.Flags().String("format", formats[0], usage)
	complete(cmd, "format", formats)
	o.svg = cmd.Flags().String("svg", "", "the older form of -o FILE.svg")
	if err := cmd.Flags().MarkHidden("svg"); err != nil {
		panic(err)
	}
	return o
}

// settle returns the format, or a usage error.
func (o *outputFlags) settle(cmd *cobra.Command) (string, error) {
	format, said := *o.format, cmd.Flags().Changed("format")
	switch ending := strings.TrimPrefix(strings.ToLower(filepath.Ext(*o.file)), "."); {
	case *o.json && said && format != "json":
		return "", usagef("--json and --format %s: give one of them", format)
	case *o.json:
		format = "json"
	case !said && ending == "yml" && slices.Contains(o.formats, "yaml"):
		format = "yaml"
	case !said && slices.Contains(o.formats, ending):
		format = ending
	}
	if !slices.Contains(o.formats, format) {
		return "", usagef("--format %q: one of %s", format, strings.Join(o.formats, ", "))
	}
	return format, nil
}

// write calls show with the file of -o, or with standard output. A file is written only if it is complete.
func (o *outputFlags) write(cmd *cobra.Command, show func(w io.Writer) error) error {
	if *o.file == "" || *o.file == "-" {
		return show(cmd.OutOrStdout())
	}
	var b bytes.Buffer
	if err := show(&b); err != nil {
		return err
	}
	return wholefile.Write(*o.file, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}
