package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/elsewhere"
	"nearmetal/internal/site"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// completeClusters completes the names of clusters; a package that knows them sets it.
var completeClusters cobra.CompletionFunc = cobra.NoFileCompletions

// addJSONFlag adds --json.
func addJSONFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON, for programs")
}

// clusterFlag is a flag that represents one key of the cluster file.
type clusterFlag struct {
	name, key, value, help string
}

var clusterFlags = []clusterFlag{
	{"name", "name", "NAME", "name of the cluster (default a generated one)"},
	{"vms", "vms[].count", "N", "number of VMs"},
	{"vcpus", "vms[].vcpus", "N", "vCPUs of each VM (default: the host's cores divided among the VMs)"},
	{"memory", "vms[].memory", "SIZE", "memory of each VM"},
	{"on", "backend", "BACKEND", "backend that runs the VMs; nearmetal version lists them"},
	{"root", "root", "host|DIR|backend", "root file system: this host's, read-only below an overlay; a directory or an image; or the backend's own disk"},
	{"accel", "accel", "", "KVM or emulation (tcg); auto uses KVM where it works"},
	{"kernel", "kernel", "FILE", "kernel of the VMs (default the newest in /boot with its modules)"},
	{"kernel-modules", "kernelModules", "DIR", "modules of that kernel (default lib/modules/VERSION below the root that it is in, else this host's)"},
	{"qemu", "qemu", "FILE", "QEMU program (default the one found)"},
	{"region", "region.size", "SIZE", "memory that the VMs share, a power of two; 0 for none (default with several VMs: 16MiB per vCPU, at least 64MiB)"},
	{"network", "network.type", "", "VM network; rxe adds a soft-RoCE RDMA device to each VM"},
	{"launcher", "launcher", "", "where mpirun and other MPI launchers run: on the host, or in the first VM"},
	{"isolation", "isolation", "", "host-side isolation of each VM (docs/security.md); auto warns if a mechanism is unavailable"},
	{"fabric", "fabric", "", "MPI transport over shared memory: auto (libfabric, else UCX), libfabric, ucx, or none, which leaves the MPI as it is"},
}

// varRootWrites is the environment variable for --root-writes.
const varRootWrites = "NEARMETAL_ROOT_WRITES"

// keyValue is the value of such a flag: text that is valid in the cluster file.
type keyValue struct {
	flag clusterFlag
	text string
}

func (v *keyValue) String() string { return v.text }

func (v *keyValue) Set(text string) error {
	if spec.FieldAt(v.flag.key).Type.Kind == spec.Bytes {
		if err := spec.CheckUnit(text); err != nil {
			return err
		}
	}
	if err := spec.Set(&spec.Cluster{}, v.flag.key, text); err != nil {
		return err
	}
	if n, err := strconv.Atoi(text); v.flag.name == "vcpus" && err == nil && n == 0 { // in a file 0 is the default
		return errors.New("0 vCPUs are not possible: leave --vcpus out to divide the host's cores")
	}
	if v.flag.key == "backend" {
		if err := backend.Known(text); err != nil {
			return err
		}
	}
	v.text = text
	return nil
}

func (v *keyValue) Type() string {
	if v.flag.value != "" {
		return v.flag.value
	}
	return strings.Join(spec.FieldAt(v.flag.key).Enum, "|")
}

// addClusterFlags adds -f and the flags that override a cluster file. The returned function reads the file, if there is
// one, applies the flags to it, fills in the defaults, makes paths absolute and validates the result. It must be called
// after the flags were parsed; it returns faults in the flags as usage errors. The notices are lines that a user who
// boots the cluster should read.
func addClusterFlags(cmd *cobra.Command) func() (c *spec.Cluster, notices []string, err error) {
	flags := cmd.Flags()
	var file fileName
	flags.VarP(&file, "file", "f", "cluster file or name of a template; the flags below override it (docs/reference/cluster.md)")
	var keys []*keyValue
	for _, f := range clusterFlags {
		v := &keyValue{flag: f}
		if f.name == "memory" || f.name == "vms" || f.name == "on" || f.name == "root" || f.name == "accel" || f.name == "network" || f.name == "launcher" || f.name == "fabric" || f.name == "isolation" {
			f.help += fmt.Sprintf(" (default %s)", spec.FieldAt(f.key).Default)
		}
		flags.Var(v, f.name, f.help)
		keys = append(keys, v)
	}
	var shares shareList
	flags.Var(&shares, "share", "share a directory with the VMs besides the working directory; repeatable")
	flags.Var(&shares, "bind", "the same as --share")
	flags.Lookup("bind").Hidden = true
	shareHome := flags.Bool("share-home", false, "share your home directory as well (home: share)")
	noHome := flags.Bool("no-home", false, "do not share your home directory, whatever cluster files say")
	exclude(cmd, "share-home", "no-home")
	noShare := flags.Bool("no-share", false, "share neither the working directory nor the cluster file's shares")
	var env envList
	flags.Var(&env, "env", "set a variable for the programs in the VMs, without VALUE to the caller's; repeatable")
	hosts := flags.StringSlice("hosts", nil, "comma-separated ssh `HOST`s to run the VMs on (default this host)")
	allowTCP := flags.Bool("allow-tcp", false, "start VMs whose RDMA devices cannot be used: MPI then uses TCP")
	strict := flags.Bool("strict", false, "fail instead of warning: more vCPUs than CPUs, VMs that differ from their plan, and with --isolation strict what this host lacks")
	rootWrites := flags.Bool("root-writes", os.Getenv(varRootWrites) == "1", "as root: let the VMs write to shares as root (also "+varRootWrites+"=1)")
	completeClusterFlags(cmd)

	return func() (*spec.Cluster, []string, error) {
		c := &spec.Cluster{}
		if file != "" {
			var stdin []byte
			var err error
			if c, stdin, err = loadCluster(cmd, string(file)); err != nil {
				return nil, nil, err
			}
			elsewhere.Consumed(stdin)
		}
		defaults, err := site.Defaults()
		if err != nil {
			return nil, nil, err
		}
		for _, d := range defaults {
			spec.Under(c, d)
		}
		if err := known(c, "config.yaml"); err != nil {
			return nil, nil, err
		}
		for _, v := range keys {
			if v.text == "" {
				continue
			}
			if v.flag.name == "vms" && len(c.VMs) > 1 {
				return nil, nil, usagef("--vms: %s has %d groups of VMs: write their counts there", file, len(c.VMs))
			}
			if v.flag.name == "kernel" {
				c.KernelModules = "" // the modules belong to another kernel
			}
			if err := spec.Set(c, v.flag.key, v.text); err != nil {
				return nil, nil, usagef("--%s: %w", v.flag.name, err)
			}
		}
		if flags.Changed("hosts") {
			c.Placement.Hosts = nil
			for _, h := range *hosts {
				if h == "" {
					return nil, nil, usagef("--hosts: a host's name is empty")
				}
				if slices.Contains(c.Placement.Hosts, h) {
					return nil, nil, usagef("--hosts: %s is there twice", h)
				}
				c.Placement.Hosts = append(c.Placement.Hosts, h)
			}
		}
		if flags.Changed("allow-tcp") {
			c.Network.AllowTCP = *allowTCP
		}
		if flags.Changed("strict") {
			c.Placement.Strict = *strict
		}
		c.RootWrites = c.RootWrites || *rootWrites
		for name, value := range env {
			if c.Env == nil {
				c.Env = map[string]string{}
			}
			c.Env[name] = value
		}
		switch {
		case *shareHome:
			c.Home = "share"
		case *noHome || *noShare:
			c.Home = "none"
		}
		notice, err := addShares(c, shares, *noShare)
		if err != nil {
			return nil, nil, err
		}
		var notices []string
		if notice != "" {
			notices = append(notices, notice)
		}
		for _, d := range defaults {
			for _, s := range d.Shares {
				if !*noShare {
					c.AddShare(s, os.Geteuid() == 0)
				}
			}
		}
		home := homeDir()
		if err := c.ShareHome(home, os.Geteuid() == 0); err != nil {
			return nil, nil, &usageError{err}
		}
		if fi, err := os.Stat(home); err == nil && fi.IsDir() && c.LosesHome(home) {
			notices = append(notices, fmt.Sprintf("warning: your home directory %s is not shared: files written there are lost; use --share-home, or --no-home to leave this line out", home))
		}
		if err := spec.Validate(c); err != nil {
			return nil, nil, &usageError{err}
		}
		spec.Defaults(c)
		if err := elsewhere.Needed(c.Backend); err != nil {
			return nil, nil, err
		}
		if vsphereHere != nil && backend.Scheme(c.Backend) == "vsphere" && cmd.Name() != "plan" {
			if err := vsphereHere.AskPassword(); err != nil { // the supervisor has no terminal
				return nil, nil, err
			}
		}
		return c, notices, nil
	}
}

// homeDir returns the caller's home directory without symbolic links, as the VMs find it, or the value of $HOME if that
// cannot be resolved.
func homeDir() string {
	home := os.Getenv("HOME")
	if real, err := filepath.EvalSymlinks(home); err == nil {
		return real
	}
	return home
}

// addShares replaces the shares of the file, or the default one, by those of the flags, and makes all paths of c
// absolute.
func addShares(c *spec.Cluster, shares []spec.Share, none bool) (notice string, err error) {
	// The working directory is resolved without symbolic links: the guests have the links of the host's root, so
	// that they can reach it by every name that it has here.
	cwd, err := os.Getwd()
	if err == nil {
		cwd, err = filepath.EvalSymlinks(cwd)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the working directory: %w", err)
	}
	if notice, err = c.SetShares(shares, none, cwd, os.Geteuid() == 0); err != nil {
		return "", usagef("--share: %w", plainProblem(err))
	}
	return notice, nil
}

// loadCluster reads the cluster file at path; - is standard input, and a name that is not a file here is a template's.
// It refuses an unknown backend. stdin is the data read from standard input.
func loadCluster(cmd *cobra.Command, path string) (c *spec.Cluster, stdin []byte, err error) {
	name := path
	if path == "-" {
		name = "standard input"
		if stdin, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), spec.MaxFile+1)); err != nil {
			return nil, nil, fmt.Errorf("cannot read the cluster file: %w", err)
		}
		c, err = spec.Parse(name, stdin)
	} else {
		c, err = spec.Load(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		f, e := site.Template(path)
		if e == nil {
			defer f.Close()
			name = f.Name()
			c, err = spec.Read(name, f)
		} else if !errors.Is(e, fs.ErrNotExist) {
			err = e
		} else if !strings.ContainsAny(path, "./") {
			err = fmt.Errorf("no cluster file or template %q (nearmetal spec templates)", path)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return c, stdin, known(c, name)
}

// known returns an error if c's backend is unknown; name is the file.
func known(c *spec.Cluster, name string) error {
	if err := backend.Known(c.Backend); err != nil {
		return fmt.Errorf("%s: backend: %w", text.Clean(name), err)
	}
	return nil
}

// span is the value of a flag that accepts a positive time.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }
func (s *span) Type() string   { return "TIME" }

func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a time: write a number with s, m or h, such as 90s", text)
	}
	*s = span(d)
	return nil
}

// addBootTimeoutFlag adds --boot-timeout.
func addBootTimeoutFlag(cmd *cobra.Command) *span {
	s := span(5 * time.Minute)
	cmd.Flags().Var(&s, "boot-timeout", "how long the VMs may take to become ready")
	return &s
}

// fileName is the value of a flag that names a file.
type fileName string

func (f *fileName) String() string { return string(*f) }
func (f *fileName) Type() string   { return "FILE" }

func (f *fileName) Set(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	*f = fileName(text)
	return nil
}

// shareList is the value of --share.
type shareList []spec.Share

func (l *shareList) String() string { return "" }
func (l *shareList) Type() string   { return "PATH[:TARGET][:ro|rw]" }

func (l *shareList) Set(text string) error {
	s, err := parseShare(text)
	if err != nil {
		return err
	}
	for _, other := range *l {
		if other == s {
			return fmt.Errorf("%q is given twice", text)
		}
	}
	*l = append(*l, s)
	return nil
}

// parseShare reads PATH[:TARGET][:ro|rw].
func parseShare(text string) (spec.Share, error) {
	parts := strings.Split(text, ":")
	s := spec.Share{Path: parts[0], Mode: "rw"}
	rest := parts[1:]
	if n := len(rest); n > 0 && (rest[n-1] == "ro" || rest[n-1] == "rw") {
		s.Mode, rest = rest[n-1], rest[:n-1]
	}
	switch {
	case s.Path == "":
		return s, fmt.Errorf("%q names no directory: write PATH, PATH:TARGET or PATH:TARGET:ro", text)
	case len(rest) > 1:
		return s, fmt.Errorf("%q has too many colons: write PATH:TARGET:ro, and a path with colons in a cluster file", text)
	case len(rest) == 1 && !strings.HasPrefix(rest[0], "/"):
		return s, fmt.Errorf("%q is neither a mode (ro or rw) nor an absolute path in the VMs", rest[0])
	case len(rest) == 1:
		s.Target = rest[0]
	}
	return s, plainProblem(spec.Validate(&spec.Cluster{Shares: []spec.Share{s}}))
}

// envList is the value of --env.
type envList map[string]string

func (l *envList) String() string { return "" }
func (l *envList) Type() string   { return "NAME[=VALUE]" }

func (l *envList) Set(text string) error {
	name, value, given := strings.Cut(text, "=")
	if err := spec.Validate(&spec.Cluster{Env: map[string]string{name: value}}); err != nil {
		return plainProblem(err)
	}
	if !given {
		if value, given = os.LookupEnv(name); !given {
			return fmt.Errorf("%s is not set here: write %s=VALUE", name, name)
		}
	}
	if *l == nil {
		*l = envList{}
	}
	(*l)[name] = value
	return nil
}

// completeClusterFlags adds the completions of the flags of addClusterFlags.
func completeClusterFlags(cmd *cobra.Command) {
	complete := func(flag string, f cobra.CompletionFunc) {
		if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
			panic(err) // two completions of one flag: a bug here
		}
	}
	directories := func(words ...string) cobra.CompletionFunc {
		return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			for _, w := range words {
				if typed != "" && strings.HasPrefix(w, typed) {
					return []string{w}, cobra.ShellCompDirectiveNoFileComp
				}
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	}
	complete("file", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	})
	for _, f := range clusterFlags {
		if enum := spec.FieldAt(f.key).Enum; enum != nil {
			complete(f.name, cobra.FixedCompletions(enum, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	complete("root", directories("host", spec.RootBackend))
	complete("on", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return backend.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	complete("kernel-modules", directories())
	complete("share", directories())
	complete("bind", directories())
	complete("env", completeEnv)
	complete("hosts", cobra.NoFileCompletions)
	for _, number := range []string{"name", "vms", "vcpus", "memory", "region"} {
		complete(number, cobra.NoFileCompletions)
	}
}

// completeEnv completes the names of the caller's environment variables.
func completeEnv(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, typed) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

var _ pflag.Value = (*keyValue)(nil)
