package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func newManCommand() *cobra.Command {
	var docs, clusterPage string
	cmd := &cobra.Command{
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
			if clusterPage != "" {
				return writeFilePage(clusterPage, args[0], docs)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			nameValues(root)
			header := &doc.GenManHeader{Section: "1", Source: "nearmetal " + version, Manual: "nearmetal", Date: sourceDate()}
			return writeManTree(root, header, args[0], docs)
		},
	}
	cmd.Flags().StringVar(&clusterPage, "cluster", "", "write nearmetal-cluster(5) alone, of `FILE`, docs/reference/cluster.md")
	cmd.Flags().StringVar(&docs, "docs", "share/doc/nearmetal", "`DIR` that make install puts docs/ into, which pages name")
	return cmd
}

// writeManTree writes the page of c, and of each command below it, to dir. Texts that name a page of docs/ name it in
// the directory docs.
func writeManTree(c *cobra.Command, header *doc.GenManHeader, dir, docs string) error {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeManTree(sub, header, dir, docs); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	h := *header
	h.Title = strings.ToUpper(name)
	var page bytes.Buffer
	long := c.Long
	c.Long = indentedLine.ReplaceAllString(long, "    $0") // Markdown keeps indented lines unchanged
	err := doc.GenMan(c, &h, &page)
	c.Long = long
	if err != nil {
		return fmt.Errorf("the manual page of %s: %w", c.CommandPath(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(completePage(c, page.String(), docs)), 0o644); err != nil {
		return fmt.Errorf("cannot write a manual page: %w", err)
	}
	return nil
}

// indentedLine matches a line of a text whose indentation is significant.
var indentedLine = regexp.MustCompile(`(?m)^  .+$`)

// pageOfDocs matches a page of docs/ in a text.
var pageOfDocs = regexp.MustCompile(`\bdocs/((?:reference/)?[a-z]+\.md)`)

// quotedValue matches the value of a flag, which cobra quotes like a default.
var quotedValue = regexp.MustCompile(`\\fP="([^"\n]+)"`)

// switchedOff matches the default of a flag without a value, which cobra shows as if it had to be written.
var switchedOff = regexp.MustCompile(`(\\fB--[a-z-]+\\fP)\[=false\]`)

// optionalValue matches the optional value of a flag, quoted likewise.
var optionalValue = regexp.MustCompile(`\[="([^"\n]+)"\]`)

// completePage adds the parts that cobra leaves out of a page.
func completePage(c *cobra.Command, page, docs string) string {
	page = optionalValue.ReplaceAllString(switchedOff.ReplaceAllString(page, "$1"), "[=$1]")
	page = quotedValue.ReplaceAllString(pageOfDocs.ReplaceAllString(page, docs+"/$1"), `\fP=$1`)
	var more strings.Builder
	if c.HasAvailableSubCommands() {
		line := "\\fB" + c.CommandPath() + "\\fP"
		page = strings.Replace(page, line+"\n", line+" COMMAND [flags]\n", 1)
		more.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&more, ".TP\n\\fB%s\\fP\n%s\n", sub.Name(), roff(sub.Short))
			}
		}
		more.WriteString("\n")
	}
	more.WriteString(exitStatuses(c))
	more.WriteString(manSections)
	// They belong before the examples, according to man-pages(7).
	const examples = ".SH EXAMPLE\n"
	return strings.Replace(page, examples, more.String()+examples, 1)
}

// roff escapes a line of text for a page.
func roff(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\e`), "-", `\-`)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// statusFindings has the meaning of exit status 3, by command; others do not exit with it.
var statusFindings = map[string]string{
	"nearmetal bench compare":                "B is worse than A at a point, or lacks a result that A has.",
	"nearmetal bench run":                    "A repetition failed.",
	"nearmetal check":                        "A check fails; a warning does not count.",
	"nearmetal explain":                      "A row fails; a warning does not count.",
	"nearmetal host openstack-region status": "The hook does not run, or a VM did not get its region.",
	"nearmetal plan":                         "With --match: no flavor fits the plan.",
	"nearmetal slurm doctor":                 "Something fails; a warning does not count.",
	"nearmetal spec validate":                "A file has a mistake.",
	"nearmetal verify":                       "Something differs; a note does not count.",
}

// runsPrograms are the commands that end with the status of a program.
var runsPrograms = map[string]bool{"nearmetal run": true, "nearmetal exec": true, "nearmetal shell": true, "nearmetal rsh": true}

// exitStatuses returns the section EXIT STATUS of a command's page.
func exitStatuses(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString(".SH EXIT STATUS\n")
	say := func(status, text string) { fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", status, roff(text)) }
	name := c.CommandPath()
	program := runsPrograms[name]
	if program {
		say("the program's", "The program ran. Of several VMs the highest status counts.")
	} else {
		say("0", "Success.")
	}
	say("2", "Wrong usage: an unknown flag, or an argument that is not valid.")
	if !c.HasParent() {
		say("3", "Findings: the command did its work, and what it checked is not as it should be. The page of each command with this "+
			"status explains it.")
	} else if found := statusFindings[name]; found != "" {
		say("3", found)
	}
	failure := exitFailure
	if name == "nearmetal rsh" {
		failure = exitShell
	}
	say(strconv.Itoa(failure), "nearmetal itself failed: standard error says in one line what failed, where, and what to do.")
	if program {
		say("126", "The program cannot be run.")
		say("127", "The program does not exist.")
		say("128+N", "Signal N ended the program, or nearmetal before the program ran: 130 after Ctrl-C.")
	} else {
		say("128+N", "Signal N ended it: 130 after Ctrl-C, 141 where nobody reads its output any more.")
	}
	if !c.HasParent() {
		b.WriteString(".PP\nThe commands run, exec, shell and rsh end with the status of the program that they ran.\n")
	}
	return b.String() + "\n"
}

// manSections are the sections that all pages share, after EXIT STATUS.
const manSections = `.SH ENVIRONMENT
.TP
\fBNEARMETAL_CLUSTER\fP
Name of the cluster where none is given.
.TP
\fBNEARMETAL_RUNTIME_DIR\fP
Directory of the running clusters, in place of the one below.
.TP
\fBNEARMETAL_ROOT_WRITES\fP
With 1, VMs that root starts may write to what is shared, as \-\-root\-writes says.
.TP
\fBXDG_CONFIG_HOME\fP
The user's defaults, templates and suites are in the directory nearmetal below it, in place of ~/.config.
.TP
\fBXDG_CACHE_HOME\fP
The cache is in the directory nearmetal below it.
.TP
\fBNO_COLOR\fP, \fBTERM\fP
NO_COLOR switches colours off; so does TERM=dumb, which also replaces live progress by plain lines.
.TP
\fBNEARMETAL_DEBUG\fP
With 1, an internal error shows where it arose.

.SH FILES
.TP
\fI/etc/nearmetal/config.yaml\fP, \fI~/.config/nearmetal/config.yaml\fP
Defaults of the site and of the user, and beside them the directory templates: nearmetal\-cluster(5).
.TP
\fI$XDG_RUNTIME_DIR/nearmetal/NAME\fP or \fI/tmp/nearmetal\-UID/NAME\fP
A running cluster: its record, journal, control socket and consoles.
.TP
\fI~/.cache/nearmetal\fP
What can be made again, such as the VMs' initramfs.
.TP
\fI/var/lib/nearmetal\fP
What root changed of the host, written down before each change: nearmetal\-host\-recover(1) undoes it.
.TP
\fI/boot/vmlinuz\-*\fP
Kernels of VMs, with their modules in /lib/modules.

`

// nameValues makes the pages show the kind of a flag's value (--memory=SIZE) where cobra shows its default, which the
// texts state.
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

// sourceDate returns the time of the commit, so that the same source makes the same pages; nil, which means today, if
// it is not known.
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
