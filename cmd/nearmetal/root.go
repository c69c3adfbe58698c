package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
)

// commands are the functions that make nearmetal's commands, in the order of its help. Each is in a file of its own.
var commands = []func() *cobra.Command{
	newRunCommand,
	newUpCommand,
	newPsCommand,
	newTopCommand,
	newVerifyCommand,
	newExecCommand,
	newShellCommand,
	newCpCommand,
	newLogsCommand,
	newPauseCommand,
	newResumeCommand,
	newRestartCommand,
	newRenameCommand,
	newDownCommand,
	newReportCommand,
	newEnvCommand,
	newHostfileCommand,
	newRshCommand,
	newTrafficCommand,
	newSuperviseCommand,
	newHostPartCommand,
	newCloudAgentCommand,
	newSlurmBootCommand,
	newSlurmVFCommand,
	newSlurmSweepCommand,
	newSlurmHostCommand,
	newSlurmPagesCommand,
	newPlanCommand,
	newTopologyCommand,
	newSpecCommand,
	newBenchCommand,
	newSlurmCommand,
	newCheckCommand,
	newExplainCommand,
	newDeviceCommand,
	newKernelCommand,
	newVSphereCommand,
	newHostCommand,
	newVersionCommand,
	newCompletionCommand,
	newManCommand,
	newReferenceCommand,
}

// The groups of commands in the help: a command's GroupID.
const (
	groupRun     = "run"
	groupCluster = "cluster"
	groupMPI     = "mpi"
	groupFile    = "file"
	groupSlurm   = "slurm"
	groupProve   = "prove"
	groupHost    = "host"
	groupSelf    = "self"
)

var groups = []*cobra.Group{
	{ID: groupRun, Title: "Run a program:"},
	{ID: groupCluster, Title: "Clusters that stay:"},
	{ID: groupMPI, Title: "MPI launchers of your own:"},
	{ID: groupFile, Title: "Cluster files:"},
	{ID: groupSlurm, Title: "Under Slurm:"},
	{ID: groupProve, Title: "How close to native:"},
	{ID: groupHost, Title: "This host:"},
	{ID: groupSelf, Title: "About nearmetal:"},
}

// exitHelp is the section on exit statuses in the help of nearmetal.
const exitHelp = `Exit status: 0 for success, 2 for wrong usage, 3 if a command that checks
something has findings, 125 if nearmetal itself failed. run, exec, shell and rsh
exit with the program's status (128 + N if signal N ended it), 126 if it cannot
be run, and 127 if it does not exist.`

// newRootCommand returns the command nearmetal with all others below it.
func newRootCommand() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "nearmetal",
		Short: "Run MPI programs inside virtual machines at the speed of the metal",
		Long: `nearmetal boots virtual machines as the user, with this host's own files as
their root, and runs MPI programs in them: the same binary with the same MPI,
natively and in VMs.

Every command names a cluster as NAME and a VM as NAME/VM. Without NAME it is the
cluster of $NEARMETAL_CLUSTER, or the only one that runs; /VM is a VM of that.

` + exitHelp,
		Example: `  nearmetal run --vms 2 -- mpirun -n 4 ./solver
  nearmetal run -f cluster.yaml -- hostname`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.Version = version
	root.SetVersionTemplate("nearmetal {{.Version}}\n")
	root.Flags().Bool("version", false, "show the version of nearmetal")
	root.PersistentFlags().BoolP("quiet", "q", false, "show no progress, nor that VMs are emulated: only warnings and errors")
	used := map[string]bool{groupSelf: true}
	var list []*cobra.Command
	for _, newCommand := range commands {
		c := newCommand()
		used[c.GroupID] = true
		list = append(list, c)
	}
	for _, g := range groups {
		if used[g.ID] {
			root.AddGroup(g)
		}
	}
	root.AddCommand(list...)
	help := newHelpCommand()
	root.SetHelpCommand(help)
	root.AddCommand(help)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	frame(root)
	return root
}

// filled is the value of a flag that must not be empty if the flag is given: an unset variable of a script does not
// request the default.
type filled struct{ pflag.Value }

func (v filled) Set(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	return v.Value.Set(text)
}

// fill makes a flag whose type accepts any text refuse an empty one. Other types refuse it themselves.
func fill(f *pflag.Flag) {
	switch f.Value.Type() {
	case "string", "stringSlice", "stringArray":
		f.Value = filled{f.Value}
		if f.DefValue == "[]" { // pflag's help would show it as a default
			f.DefValue = ""
		}
	}
}

// frame sets the common properties of c and the commands below it: errors that distinguish usage from failure, flags in
// the order in which they were added, and no empty values except for internal programs (hidden commands).
func frame(c *cobra.Command) {
	c.Flags().SortFlags = false
	if !c.Hidden {
		c.Flags().VisitAll(fill)
		c.PersistentFlags().VisitAll(fill)
	}
	c.InitDefaultHelpFlag()
	c.Flags().Lookup("help").Usage = "show this help"
	c.DisableFlagsInUseLine = true
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return &runError{err}
			}
			return nil
		}
	}
	if !c.Hidden && c.RunE != nil {
		c.Args = noneEmpty(c.Args)
	}
	if c.HasSubCommands() && c.RunE == nil && c.Run == nil {
		// cobra itself accepts any word after a command that has no work of its own.
		c.Args = unknownCommand
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range c.Commands() {
		frame(sub)
	}
}

// unknownCommand refuses words after a command that only has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, append([]string{c.Name()}, c.Aliases...)...)
		}
	}
	if near := spec.Nearest(args[0], names); near != "" {
		return usagef("unknown command %q: did you mean %s?", args[0], near)
	}
	return usagef("unknown command %q", args[0])
}

// progress returns the progress of a command: silent with --quiet. The caller closes it before the command ends.
func progress(cmd *cobra.Command) *terminal.Progress {
	return terminal.NewProgress(cmd.ErrOrStderr(), quiet(cmd))
}

// quiet reports whether a command has --quiet.
func quiet(cmd *cobra.Command) bool {
	set, err := cmd.Flags().GetBool("quiet")
	return err == nil && set
}

// debugging reports whether debug output is wanted (NEARMETAL_DEBUG=1).
func debugging() bool { return os.Getenv("NEARMETAL_DEBUG") == "1" }

// flagNames returns the long names of a command's flags.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// usage prints the usage of a command: in cobra's order, but without lines over 80 columns.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	} else {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	writeCommands(&b, cmd)
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", flagUsages(cmd.LocalFlags()))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\nFlags of every command:\n%s", flagUsages(cmd.InheritedFlags()))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", cmd.CommandPath())
	}
	_, err := cmd.OutOrStdout().Write([]byte(b.String()))
	return err
}

// helpWidth is the maximum width of help, in columns.
const helpWidth = 80

func flagUsages(flags *pflag.FlagSet) string {
	return flags.FlagUsagesWrapped(helpWidth)
}

// writeCommands lists the commands below cmd by their groups.
func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	list := func(title, group string) {
		heading := "\n" + title + "\n"
		for _, c := range cmd.Commands() {
			if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(b, "%s  %-*s  %s\n", heading, cmd.NamePadding(), c.Name(), c.Short)
				heading = ""
			}
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	list("Commands:", "")
}
