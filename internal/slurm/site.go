package slurm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/slurm/conf"
)

// Plugin is the file name of nearmetal's SPANK plugin.
const Plugin = "spank_nearmetal.so"

// Site is what the doctor reads: the configuration of Slurm and what this host is.
type Site struct {
	Conf  *conf.Config // slurm.conf
	Gres  *conf.Config // gres.conf; nil if there is none
	Cgrp  *conf.Config // cgroup.conf; nil if there is none
	MPI   *conf.Config // mpi.conf; nil if there is none
	Stack []StackLine  // plugstack.conf and its includes
	// StackFile is the plugstack.conf that holds; it may be missing.
	StackFile string
	// Version is Slurm's, such as 22.5; 0, 0 if no program of it could be asked.
	Major, Minor int
	VersionText  string
	Node         string // NodeName of this host; empty if slurm.conf has none for it
	NodeLine     *conf.Line
	Offer        *Gres  // what this host could offer
	root         string // "/", or a captured tree
}

// StackLine is one plugin of plugstack.conf.
type StackLine struct {
	File     string
	Number   int
	Required bool
	Path     string // of the plugin
	Args     []string
}

// Options say where the doctor looks.
type Options struct {
	Conf string // slurm.conf; empty: $SLURM_CONF, else where distributions have it
	Root string // "/" or a folder that stands for it
	Node string // NodeName to look at; empty: the one of this host's name
	// Hostname is this host's name; empty: the kernel's.
	Hostname string
	Offer    *Gres
	// Ask runs Slurm's own programs for their version.
	Ask bool
}

// confPlaces are where slurm.conf is looked for: upstream's and Debian's, RHEL's, Debian 10's.
var confPlaces = []string{"/etc/slurm/slurm.conf", "/usr/local/etc/slurm.conf", "/etc/slurm-llnl/slurm.conf"}

// NewSite reads a site's configuration. An error says what could not be read and where.
func NewSite(ctx context.Context, o Options) (*Site, error) {
	s := &Site{root: o.Root, Offer: o.Offer}
	if s.root == "" {
		s.root = "/"
	}
	file, err := s.findConf(o.Conf)
	if err != nil {
		return nil, err
	}
	if s.Conf, err = conf.Read(file); err != nil {
		return nil, err
	}
	dir := filepath.Dir(file)
	if s.Gres, err = optional(filepath.Join(dir, "gres.conf")); err != nil {
		return nil, err
	}
	if s.Cgrp, err = optional(filepath.Join(dir, "cgroup.conf")); err != nil {
		return nil, err
	}
	if s.MPI, err = optional(filepath.Join(dir, "mpi.conf")); err != nil {
		return nil, err
	}
	s.StackFile = filepath.Join(dir, "plugstack.conf")
	if v, _, ok := s.Conf.Last("PlugStackConfig"); ok {
		s.StackFile = s.path(v)
	}
	if s.Stack, err = readStack(s.StackFile, 0); err != nil {
		return nil, err
	}
	if o.Ask {
		s.askVersion(ctx)
	}
	if o.Hostname == "" {
		o.Hostname, _ = os.Hostname()
	}
	return s, s.findNode(o)
}

// path returns the place of an absolute path below the site's root.
func (s *Site) path(name string) string {
	if s.root == "/" {
		return name
	}
	return filepath.Join(s.root, name)
}

func (s *Site) findConf(given string) (string, error) {
	if given == "" {
		given = os.Getenv("SLURM_CONF")
	}
	if given != "" {
		return given, nil
	}
	for _, place := range confPlaces {
		if _, err := os.Stat(s.path(place)); err == nil {
			return s.path(place), nil
		}
	}
	return "", fmt.Errorf("no slurm.conf in %s: --conf FILE or SLURM_CONF says where it is, nearmetal slurm example writes a new one", strings.Join(confPlaces, ", "))
}

// optional reads a file that need not be there.
func optional(name string) (*conf.Config, error) {
	c, err := conf.Read(name)
	if errors.Is(err, os.ErrNotExist) && c != nil && len(c.Lines) == 0 {
		return nil, nil
	}
	return c, err
}

// readStack reads plugstack.conf (spank(8), CONFIGURATION): required|optional PLUGIN [ARGS], or
// include FILE, which may be a pattern.
func readStack(name string, depth int) ([]StackLine, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []StackLine
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		text, _, _ := strings.Cut(scan.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("%s:%d: %q is not followed by a plugin", name, n, words[0])
		}
		switch words[0] {
		case "required", "optional":
			out = append(out, StackLine{File: name, Number: n, Required: words[0] == "required", Path: words[1], Args: words[2:]})
		case "include":
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(name), pattern)
			}
			if depth == 4 {
				return nil, fmt.Errorf("%s:%d: includes are more than %d deep", name, n, depth)
			}
			files, err := filepath.Glob(pattern)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, n, err)
			}
			for _, file := range files {
				more, err := readStack(file, depth+1)
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
			}
		default:
			return nil, fmt.Errorf("%s:%d: %q is none of required, optional, include", name, n, words[0])
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

var versionNumber = regexp.MustCompile(`slurm(?:-wlm)? (\d+)\.(\d+)[.\d-]*`)

// askVersion asks the first of Slurm's programs that is there.
func (s *Site) askVersion(ctx context.Context) {
	for _, program := range []string{"scontrol", "slurmd", "slurmctld", "srun"} {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := exec.CommandContext(ctx, program, "-V").Output()
		cancel()
		if m := versionNumber.FindSubmatch(out); err == nil && m != nil {
			s.VersionText = string(m[0])
			s.Major, _ = strconv.Atoi(string(m[1]))
			s.Minor, _ = strconv.Atoi(string(m[2]))
			return
		}
	}
}

// findNode finds this host's line in slurm.conf: by NodeName, else by NodeHostname.
func (s *Site) findNode(o Options) error {
	short, _, _ := strings.Cut(o.Hostname, ".")
	for _, l := range s.Conf.Records("NodeName") {
		names, err := conf.Expand(l.Pairs[0].Value)
		if err != nil {
			return fmt.Errorf("%s: NodeName: %w", l.Where(), err)
		}
		hosts := names
		if v, ok := l.Get("NodeHostname"); ok {
			if hosts, err = conf.Expand(v); err != nil {
				return fmt.Errorf("%s: NodeHostname: %w", l.Where(), err)
			}
		}
		for i, name := range names {
			// One NodeHostname may stand for all names: several slurmd on one host.
			host := hosts[min(i, len(hosts)-1)]
			if name == o.Node || o.Node == "" && (host == o.Hostname || host == short) {
				s.Node, s.NodeLine = name, l
				return nil
			}
		}
	}
	if o.Node != "" {
		return fmt.Errorf("%s: no NodeName is %q", s.Conf.File, o.Node)
	}
	return nil
}

// AtLeast says whether Slurm is of a version or a later one; a version that is not known is
// taken to be old.
func (s *Site) AtLeast(major, minor int) bool {
	return s.Major > major || s.Major == major && s.Minor >= minor
}

// StateFolder returns the plugin's folder of running jobs, as this host's plugstack.conf names it; "" on a host that
// has neither the folder nor the plugin.
func StateFolder() (string, error) {
	state, loaded := DefaultState, false
	s := &Site{root: "/"}
	if file, err := s.findConf(""); err == nil {
		stackFile := filepath.Join(filepath.Dir(file), "plugstack.conf")
		if c, err := conf.Read(file); err == nil {
			if v, _, ok := c.Last("PlugStackConfig"); ok {
				stackFile = v
			}
		}
		stack, err := readStack(stackFile, 0)
		if err != nil {
			return "", err
		}
		for _, l := range stack {
			if filepath.Base(l.Path) != Plugin {
				continue
			}
			loaded = true
			for _, a := range l.Args {
				if v, ok := strings.CutPrefix(a, "state="); ok {
					state = v
				}
			}
		}
	}
	if _, err := os.Stat(state); errors.Is(err, os.ErrNotExist) && !loaded {
		return "", nil
	}
	return state, nil
}
