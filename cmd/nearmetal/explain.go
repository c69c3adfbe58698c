package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/explain"
	"nearmetal/internal/host"
	"nearmetal/internal/host/check"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain [flags] FILE.xml|DOMAIN",
		GroupID: groupHost,
		Short:   "Report what keeps a libvirt domain from native speed, and fix its XML",
		Long: `Reads a domain's XML, from a file or from libvirtd, lays it on the topology of
this host, and reports row by row what was found, what is wanted, what it costs
with the document that says so, and the lines that fix it. What is wanted is
what nearmetal plan would choose for such a VM on this host with nothing else
on it.

FILE may be -, standard input; a name without a slash that is not a file is a
domain's. --from names another host: a captured tree, an archive of nearmetal
topology gather, hwloc's XML or a description.

A sound placement of the domain's own is kept, and what it leaves open is filled
in; any other is replaced whole.

--fix writes the XML with all of these lines to a new file, and leaves all other
bytes as they are. The domain itself is left alone until you give that file to
virsh define, or say --define: then the old XML is kept next to it, in FILE.old.
See docs/libvirt.md.

The exit status is 3 if a row fails; a warning costs something, or may.`,
		Example: `  nearmetal explain vm0
  virsh dumpxml vm0 | nearmetal explain -
  nearmetal explain --problems vm0.xml
  nearmetal explain --from node17.tar.gz vm0.xml
  nearmetal explain --fix vm0-fixed.xml vm0.xml && virsh define vm0-fixed.xml
  nearmetal explain --fix vm0-fixed.xml --define vm0
  nearmetal explain --json vm0.xml`,
		Args: exactArgs("the domain's XML, FILE or -, or its name"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			if names, _ := completeDomain(cmd, args, to); len(names) > 0 && !strings.ContainsAny(to, "/.") {
				return names, cobra.ShellCompDirectiveDefault
			}
			return []string{"xml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	renamed(cmd, "host", "from")
	on := cmd.Flags().String("from", "", "compare it with `HOST` instead of this one: a directory, an archive, hwloc's XML or a description")
	fix := cmd.Flags().String("fix", "", "write the XML with everything fixed to `FILE`, which must be new; - for standard output")
	define := cmd.Flags().Bool("define", false, "with --fix and a domain's name: define it anew by that XML; what runs is left alone until it is started again")
	connect := addConnectFlag(cmd)
	all := cmd.Flags().Bool("all", false, "show what does not apply, too")
	problems := cmd.Flags().Bool("problems", false, "show only what fails or warns")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *fix != "" && *asJSON {
			return usagef("--fix and --json cannot be given together")
		}
		if *define && (*fix == "" || *fix == "-") {
			return usagef("--define goes with --fix FILE, beside which the old XML is kept")
		}
		ctx, stop := interruptible()
		defer stop()
		v := explain.Running
		switch *fix {
		case "":
		case "-": // standard input: a terminal or a pipe
			v = explain.Next
		default:
			v = explain.NextSecrets
		}
		src, err := openDomain(ctx, cmd, args[0], *connect, v)
		if err != nil {
			return err
		}
		defer src.close()
		if *define && src.conn == nil {
			return usagef("--define: %s is a file: name the domain", text.Clean(args[0]))
		}
		h, err := explainHost(*on)
		if err != nil {
			return err
		}
		d := src.domain
		switch {
		case *on != "":
		case src.conn != nil:
			if d.NoKVM, err = src.conn.NoKVM(ctx); err != nil {
				return err
			}
		default:
			d.NoKVM = noKVM()
		}
		if *fix != "" {
			return src.fix(ctx, cmd, h, *fix, *define)
		}
		r, err := explain.Explain(d, h)
		if err != nil {
			return fmt.Errorf("%s: %w", text.Clean(args[0]), err)
		}
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), r)
		} else {
			f := checkFlags{all: *all, problems: *problems}
			_, err = io.WriteString(cmd.OutOrStdout(), r.Text(f.text(cmd)))
			if err == nil && r.Fixable() {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "\n--fix FILE writes the XML with these lines")
			}
		}
		if err == nil && r.Failed() {
			err = findings(nil)
		}
		return err
	}
	return cmd
}

// noKVM returns the reason why no VM can run under KVM on this host, or "". Missing rights of this user do not count,
// because libvirtd has them.
func noKVM() string {
	_, _, err := host.DetectAccel("kvm")
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "accel kvm: ")
}

// readDomain reads the XML of a file, or of standard input for "-".
func readDomain(stdin io.Reader, name string) (*explain.Domain, error) {
	r := stdin
	if name != "-" {
		// Reading anything but a regular file could block forever.
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !st.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a file: virsh dumpxml prints a domain's XML", text.Clean(name))
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	d, err := explain.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text.Clean(name), err)
	}
	return d, nil
}

// source is an explained domain and its origin.
type source struct {
	domain *explain.Domain
	// Only for a domain of libvirtd, not for a file:
	text string // its XML
	conn *daemon.Conn
	of   *daemon.Domain
}

// mode returns the mode of the files to write: a domain's XML may contain passwords.
func (s *source) mode() fs.FileMode {
	if s.conn != nil {
		return 0o600
	}
	return 0o644
}

func (s *source) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// openDomain reads the domain that arg names: a file, - or a version from libvirtd.
func openDomain(ctx context.Context, cmd *cobra.Command, arg, uri string, v explain.Which) (*source, error) {
	_, err := os.Stat(arg)
	if uri == "" && (arg == "-" || err == nil || strings.ContainsRune(arg, '/') || strings.HasSuffix(arg, ".xml")) {
		d, err := readDomain(cmd.InOrStdin(), arg)
		return &source{domain: d}, err
	}
	c, err := connectLibvirtd(ctx, uri)
	var none *daemon.NoDaemon
	switch {
	case err == nil:
	case uri != "":
		return nil, err
	case errors.As(err, &none) && !none.Address.Session && !errors.Is(err, fs.ErrPermission):
		start := "systemctl start libvirtd"
		if os.Geteuid() != 0 { // root has no session
			start += ", or --connect qemu:///session"
		}
		return nil, fmt.Errorf("%s: not a file, and libvirtd is not running (%s)", text.Clean(arg), start)
	default:
		return nil, fmt.Errorf("%s: not a file; as a domain: %w", text.Clean(arg), err)
	}
	s := &source{conn: c}
	s.of, err = findDomain(ctx, c, arg)
	if err == nil {
		s.domain, s.text, err = explain.Fetch(ctx, c, s.of, v)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// fix writes the fixed XML to path and, with define, defines the domain from it. The old XML is saved first, so that an
// interrupted change can be undone.
func (s *source) fix(ctx context.Context, cmd *cobra.Command, h *topology.Host, path string, define bool) error {
	if !define {
		return fixDomain(cmd, s.domain, h, path, s.mode())
	}
	switch kept, err := s.conn.Persistent(ctx, s.of); {
	case err != nil:
		return err
	case !kept:
		return fmt.Errorf("--define: domain %s is transient: libvirt forgets it when it stops; change the XML that it is created from", text.Clean(s.of.Name))
	}
	old := path + ".old"
	if err := writeNew(old, s.text, s.mode()); err != nil {
		return err
	}
	if err := fixDomain(cmd, s.domain, h, path, s.mode()); err != nil {
		os.Remove(old)
		return err
	}
	fixed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	err = s.conn.Define(ctx, string(fixed))
	var said *daemon.Said
	switch {
	case errors.As(err, &said):
		os.Remove(old)
		return fmt.Errorf("libvirtd does not take the XML in %s, and the domain is as it was: %w", text.Clean(path), err)
	case err != nil: // it is unknown whether the change was applied
		return fmt.Errorf("%w; the domain may have been defined anew: virsh define %s takes that back", err, text.Clean(old))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "defined %s anew; virsh define %s takes it back\n", text.Clean(s.domain.Name), text.Clean(old))
	return err
}

// explainHost returns the host on which a domain is placed.
func explainHost(name string) (*topology.Host, error) {
	if name == "" {
		return topology.Read("/")
	}
	return topology.Open(name)
}

// fixDomain writes the fixed XML, and reports the rows that it fixes.
func fixDomain(cmd *cobra.Command, d *explain.Domain, h *topology.Host, path string, mode fs.FileMode) error {
	fixed, did, err := explain.Fixed(d, h)
	if err != nil {
		return fmt.Errorf("%s: %w", text.Clean(d.Name), err)
	}
	if path == "-" {
		_, err = io.WriteString(cmd.OutOrStdout(), fixed)
		return err
	}
	if err := writeNew(path, fixed, mode); err != nil {
		return err
	}
	if len(did) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing was to be changed\n", text.Clean(path))
		return err
	}
	for _, id := range did {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "fixed "+id); err != nil {
			return err
		}
	}
	if len(d.Lost) > 0 {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "kept  as it is, not known here: "+strings.Join(d.Lost, ", ")); err != nil {
			return err
		}
	}
	again, err := explain.Read(strings.NewReader(fixed))
	if err != nil {
		return err
	}
	again.NoKVM, again.Networks = d.NoKVM, d.Networks
	left, err := explain.Explain(again, h)
	if err != nil {
		return err
	}
	for _, row := range left.Rows {
		if row.Status == check.Fail || row.Status == check.Warn {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "left  %s: %s\n", row.ID, row.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}
