package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/change"
	"nearmetal/internal/host/check"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
)

// checkFlags are the flags of check.
type checkFlags struct {
	profile  string
	only     []string
	explain  string
	all      bool
	problems bool
	dryRun   bool
	json     *bool
	root     string
	measure  bool
	vm       string
	cluster  *string
	fix      bool
	yes      bool
	persist  bool
	undo     bool
	hugePage spec.Size
	fleet    string
	via      string
	esxi     string
	bundles  []string

	domains    []string
	allDomains bool
	connect    *string
}

func newCheckCommand() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:     "check [flags] | check --fix [ID...]",
		GroupID: groupHost,
		Short:   "Report what keeps this host from native speed, and fix it",
		Long: `Checks firmware, kernel command line, CPU and power, memory, IOMMU and VFIO,
RDMA devices and links, KVM, QEMU, limits and Slurm: what was found, what is
wanted, what it costs and how to fix it. What to fix first is at the top.
Nothing is changed without --fix.

--vm without a name checks the VM that nearmetal runs in, of whichever cloud,
without rights: emulation, clock, page tables, stolen time, cards, the region.

--fix writes what a running kernel takes, after it has shown it and asked, and
notes every value before; --undo puts them back, also after a kill or a crash.
--persist has them set at each boot. What takes a reboot or firmware settings is
printed as commands. See docs/check.md.

--esxi reads an ESXi host by ssh: its packages, the firmware settings of its
cards, its driver. With --fix it runs the commands there that it shows first.
Nothing there is read or run without a name after --esxi.

The exit status is 3 if a check fails; a warning costs something, or may.`,
		Example: `  nearmetal check
  nearmetal check --problems
  nearmetal check --fix --dry-run
  nearmetal check --for vm-host --json >host.json
  nearmetal check --explain memory.hugepages
  sudo nearmetal check --fix memory power
  sudo nearmetal check --undo
  nearmetal check --vm demo/vm0
  ssh cloud-vm nearmetal check --vm
  nearmetal check --domain web01 --problems
  nearmetal check --measure
  nearmetal check --fleet hosts.txt
  nearmetal check --esxi root@esx1.example.com
  nearmetal check --esxi root@esx1.example.com --fix esxi.max-vfs`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			// The word after --vm is a VM, although it was parsed as an argument, because --vm needs no
			// value.
			if len(args) == 0 && f.vm == thisVM {
				return completeOneTarget(cmd, nil, typed)
			}
			return check.Names(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "for", "", "what the host is for, `PROFILE`: vm-host, guest, slurm-node or roce (default all but guest)")
	flags.StringSliceVar(&f.only, "only", nil, "only these checks, `ID`s, or the word before the dot; repeatable")
	flags.StringVar(&f.explain, "explain", "", "print all that is known of the check `ID`")
	flags.BoolVar(&f.all, "all", false, "show what does not apply to this host, too")
	flags.BoolVar(&f.problems, "problems", false, "show only what fails or warns")
	f.json = addJSONFlag(cmd)
	flags.BoolVar(&f.measure, "measure", false, "time cores, memory, system calls and RDMA devices as well, in under a minute")
	flags.BoolVar(&f.fix, "fix", false, "fix what a running kernel can, of all checks or of those named")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --fix: show what would be written, and write nothing (root is not needed)")
	flags.BoolVarP(&f.yes, "yes", "y", false, "with --fix: do not ask")
	flags.BoolVar(&f.persist, "persist", false, "with --fix: set it at each boot as well (sysctl.d, tmpfiles.d, modprobe.d, tuned, systemd)")
	flags.Var(&f.hugePage, "huge-pages", "with --fix: huge pages on each node (default half of what the node has available)")
	flags.BoolVar(&f.undo, "undo", false, "put back every value that --fix changed, and remove what --persist wrote")
	flags.StringVar(&f.vm, "vm", "", "check the running VM `NAME/VM` from the inside; without a value the VM that nearmetal runs in")
	flags.Lookup("vm").NoOptDefVal = thisVM
	f.cluster = addClusterNameFlag(cmd)
	flags.StringSliceVar(&f.domains, "domain", nil, "check libvirt's domain `NAME` on this host, as nearmetal explain does; repeatable")
	flags.BoolVar(&f.allDomains, "domains", false, "check all of libvirt's domains on this host")
	f.connect = addConnectFlag(cmd)
	flags.StringVar(&f.fleet, "fleet", "", "compare hosts: `FILE` has a host or a .json report a line, or a directory of reports")
	flags.StringVar(&f.via, "via", "ssh", "with --fleet: how hosts are reached, `ssh|pdsh`")
	flags.StringVar(&f.esxi, "esxi", "", "check the ESXi `HOST` by ssh; USER@HOST as for ssh")
	flags.StringSliceVar(&f.bundles, "bundle", nil, "with --esxi and --fix esxi.tools or esxi.driver: install `FILE`, which is on the host; repeatable")
	renamed(cmd, "root", "from")
	flags.StringVar(&f.root, "from", "", "a captured tree, `DIR` with sys/ and proc/ in it, instead of this host")
	completeCheckFlags(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.vm == thisVM && len(args) == 1 {
			f.vm, args = args[0], nil // --vm NAME/VM
		}
		if len(args) > 0 && !f.fix {
			return usagef("%q: checks are named after --fix, or with --only", args[0])
		}
		return f.validate(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible()
		defer stop()
		return f.run(ctx, cmd, args)
	}
	return cmd
}

// validate refuses combinations of flags that are not supported.
func (f *checkFlags) validate(cmd *cobra.Command) error {
	if f.esxi != "" || len(f.bundles) > 0 {
		return f.validateESXi(cmd)
	}
	modes := []string{}
	for _, name := range []string{"explain", "fix", "undo", "vm", "domain", "domains", "fleet"} {
		if cmd.Flags().Changed(name) {
			modes = append(modes, "--"+name)
		}
	}
	if len(modes) > 1 {
		return usagef("%s cannot be given together", strings.Join(modes, " and "))
	}
	for _, name := range []string{"yes", "persist", "huge-pages", "dry-run"} {
		if cmd.Flags().Changed(name) && !f.fix {
			return usagef("--%s goes with --fix", name)
		}
	}
	if f.fix && *f.json && !f.dryRun {
		return usagef("--fix and --json cannot be given together without --dry-run")
	}
	if *f.connect != "" && len(f.domains) == 0 && !f.allDomains {
		return usagef("--connect goes with --domain or --domains")
	}
	if f.root != "" && (len(f.domains) > 0 || f.allDomains) {
		return usagef("--from and domains cannot be given together: nearmetal explain --from compares a domain with another host")
	}
	if f.root != "" && (f.fix || f.undo || f.vm != "" && f.vm != thisVM || f.measure || f.fleet != "") {
		return usagef("--from only reads one captured tree: leave out --fix, --undo, --vm, --measure and --fleet")
	}
	if f.measure && len(modes) > 0 {
		return usagef("--measure and %s cannot be given together", modes[0])
	}
	if f.via != "ssh" && f.via != "pdsh" {
		return usagef("--via: %q is neither ssh nor pdsh", f.via)
	}
	if f.profile == "" {
		return nil
	}
	var words []string
	for _, p := range check.Profiles {
		words = append(words, string(p))
		if string(p) == f.profile {
			return nil
		}
	}
	if near := spec.Nearest(f.profile, words); near != "" {
		return usagef("--for: %q is not a profile: did you mean %s?", f.profile, near)
	}
	return usagef("--for: %q is not a profile: use %s", f.profile, strings.Join(words, ", "))
}

func (f *checkFlags) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	p := progress(cmd)
	defer p.Close()
	if os.Geteuid() == 0 && f.root == "" && f.esxi == "" {
		// Changes of a --fix that was killed are undone before anything is read.
		did, err := change.Recover(change.Dir)
		for _, c := range did {
			p.Printf("put back after a --fix that was cut short: %s", c)
		}
		if err != nil {
			return err
		}
	}
	o := check.Options{Root: f.root, Profile: check.Profile(f.profile), Only: f.only, HugePageBytes: uint64(f.hugePage)}
	switch {
	case f.esxi != "":
		return f.runESXi(ctx, cmd, p, args)
	case f.explain != "":
		return f.runExplain(ctx, cmd, o)
	case f.fix:
		o.Only = append(o.Only, args...)
		return f.runFix(ctx, cmd, p, o)
	case f.undo:
		return runUndo(cmd)
	case f.vm == thisVM:
		return f.runThisVM(ctx, cmd, o)
	case f.vm != "":
		return f.runVM(ctx, cmd, p)
	case len(f.domains) > 0 || f.allDomains:
		return f.runDomains(ctx, cmd)
	case f.fleet != "":
		return f.runFleet(ctx, cmd, p)
	case f.measure:
		return f.runMeasure(ctx, cmd, p, o)
	}
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	return f.show(cmd, &r)
}

// show prints a report. It returns findings if a check failed.
func (f *checkFlags) show(cmd *cobra.Command, r *check.Report) error {
	var err error
	if *f.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), f.text(cmd).Report(r))
	}
	if err == nil && r.Failed() {
		err = findings(nil)
	}
	return err
}

// text returns the layout of reports for standard output, which may be a terminal.
func (f *checkFlags) text(cmd *cobra.Command) check.Text {
	w := cmd.OutOrStdout()
	t := check.Text{Columns: terminal.Width(w), All: f.all, Problems: f.problems}
	if terminal.Coloured(w) {
		t.Paint = func(s check.Status, word string) string {
			colours := map[check.Status]terminal.Colour{check.OK: terminal.Green, check.Warn: terminal.Yellow, check.Fail: terminal.Red, check.Unknown: terminal.Dim}
			return terminal.Paint(word, colours[s], true)
		}
	}
	return t
}

func (f *checkFlags) runExplain(ctx context.Context, cmd *cobra.Command, o check.Options) error {
	o.Only = []string{f.explain}
	rows, err := check.Select(o.Profile, o.Only)
	if err != nil {
		return checkError(err)
	}
	if !strings.Contains(f.explain, ".") {
		// A group: the checks of the profile that are in it.
		o.Only = nil
		for _, r := range rows {
			o.Only = append(o.Only, r.ID)
		}
		if len(rows) == 0 {
			return usagef("--explain %s: of these checks none is for %s", f.explain, f.profile)
		}
	}
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	if *f.json {
		return terminal.PrintJSON(cmd.OutOrStdout(), r.Rows)
	}
	t := f.text(cmd)
	for i := range rows {
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), t.Explain(&rows[i], &r.Rows[i])); err != nil {
			return err
		}
	}
	return nil
}

// checkError turns the error for an unknown check into a usage error.
func checkError(err error) error {
	var no *check.ErrNoRow
	if !errors.As(err, &no) {
		return err
	}
	if near := spec.Nearest(no.ID, no.Near); near != "" {
		return usagef("no check is called %q: did you mean %s?", no.ID, near)
	}
	return usagef("no check is called %q: nearmetal check --all shows them", no.ID)
}

func completeCheckFlags(cmd *cobra.Command) {
	ids := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return check.Names(), cobra.ShellCompDirectiveNoFileComp
	}
	var profiles []string
	for _, p := range check.Profiles {
		profiles = append(profiles, string(p))
	}
	for name, complete := range map[string]cobra.CompletionFunc{
		"only": ids, "explain": ids,
		"for":        cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp),
		"via":        cobra.FixedCompletions([]string{"ssh", "pdsh"}, cobra.ShellCompDirectiveNoFileComp),
		"vm":         completeOneTarget,
		"domain":     completeDomain,
		"huge-pages": cobra.NoFileCompletions,
		"esxi":       cobra.NoFileCompletions,
		"bundle":     cobra.NoFileCompletions,
		"from": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // two completions of one flag: a bug here
		}
	}
}
