package check

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// facts is a host as read by the rows. Files that several rows need are read once.
type facts struct {
	*tree
	ctx     context.Context
	live    bool // this host, and not a captured tree
	profile Profile
	run     func(ctx context.Context, name string, args ...string) ([]byte, error)
	huge    uint64 // Options.HugePageBytes

	kvmOnce sync.Once
	kvmErr  error

	mu       sync.Mutex
	answers  map[string]*answer
	lines    map[string]string
	cpuinfo  map[string]string
	flagSet  map[string]bool
	args     map[string][]string
	topo     *topology.Host
	topoErr  error
	topoDone chan struct{} // closed when topo is read; nil: not begun
	procs    map[string][]int
	pci      []*pciDevice
	pciDone  bool
	rdma     []*rdmaDevice
	rdmaDone bool
	slurm    *slurmConfig
}

func newFacts(ctx context.Context, o Options) (*facts, error) {
	t, err := openTree(o.Root)
	if err != nil {
		return nil, err
	}
	f := &facts{tree: t, ctx: ctx, live: t.path == "/", profile: o.Profile, run: o.Command, huge: o.HugePageBytes,
		answers: map[string]*answer{}, lines: map[string]string{}}
	if f.run == nil && f.live {
		f.run = runCommand
	}
	return f, nil
}

// line returns a file's first line without surrounding blanks, or "" if it cannot be read.
func (f *facts) line(name string) string {
	if s, ok := f.lines[name]; ok {
		return s
	}
	s, err := f.read(name)
	if err != nil {
		s = ""
	}
	s, _, _ = strings.Cut(s, "\n")
	s = printable(strings.TrimSpace(s))
	f.lines[name] = s
	return s
}

// number returns a file that is one decimal number.
func (f *facts) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(f.line(name), 10, 64)
	return n, err == nil
}

// lineMax bounds the part of a line that is printed or compared, in bytes.
const lineMax = 4096

// printable sanitizes a line, because a captured tree or a device may contain anything. It does not mark a cut,
// because its result is also compared.
func printable(s string) string { return text.Clean(text.Cut(s, lineMax)) }

// numbered returns the names in a directory that are prefix and a number, in the order of the numbers.
func (f *facts) numbered(dir, prefix string) []string {
	type entry struct {
		n    int
		name string
	}
	var found []entry
	for _, name := range f.list(dir) {
		if digits, ok := strings.CutPrefix(name, prefix); ok {
			if n, err := strconv.Atoi(digits); err == nil && n >= 0 {
				found = append(found, entry{n, name})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].n < found[j].n })
	names := make([]string, len(found))
	for i, e := range found {
		names[i] = e.name
	}
	return names
}

// chosen returns the word in brackets of an attribute such as "always [madvise] never".
func chosen(s string) string {
	if _, after, ok := strings.Cut(s, "["); ok {
		word, _, _ := strings.Cut(after, "]")
		return word
	}
	return s
}

// readCPU reads the first CPU's part of /proc/cpuinfo.
func (f *facts) readCPU() {
	if f.cpuinfo != nil {
		return
	}
	f.cpuinfo, f.flagSet = map[string]string{}, map[string]bool{}
	s, _ := f.read("/proc/cpuinfo")
	for _, line := range strings.Split(s, "\n") {
		if strings.TrimSpace(line) == "" {
			break
		}
		key, val, _ := strings.Cut(line, ":")
		f.cpuinfo[strings.TrimSpace(key)] = printable(strings.TrimSpace(val))
	}
	for _, key := range []string{"flags", "Features", "vmx flags"} { // Features: aarch64
		for _, name := range strings.Fields(f.cpuinfo[key]) {
			f.flagSet[name] = true
		}
	}
}

func (f *facts) cpuField(key string) string { f.readCPU(); return f.cpuinfo[key] }

// cpuFlag reports whether the first CPU has a flag.
func (f *facts) cpuFlag(name string) bool { f.readCPU(); return f.flagSet[name] }

func (f *facts) intel() bool { return f.cpuField("vendor_id") == "GenuineIntel" }
func (f *facts) amd() bool   { return f.cpuField("vendor_id") == "AuthenticAMD" }

// inVM reports whether this machine is a VM itself.
func (f *facts) inVM() bool { return f.cpuFlag("hypervisor") }

// arg returns the values of a parameter on the kernel's command line, and whether it occurs.
func (f *facts) arg(name string) ([]string, bool) {
	if f.args == nil {
		s, _ := f.read("/proc/cmdline")
		f.args = parseCmdline(s)
	}
	v, ok := f.args[name]
	return v, ok
}

// parseCmdline parses a kernel command line: words with or without a value, double quotes around blanks
// (Documentation/admin-guide/kernel-parameters.rst). Hyphens in names count as underscores; words after "--" are
// init's.
func parseCmdline(s string) map[string][]string {
	args := map[string][]string{}
	var word strings.Builder
	quoted := false
	take := func() bool {
		w := word.String()
		word.Reset()
		if w == "--" {
			return false
		}
		if w != "" {
			name, value, _ := strings.Cut(w, "=")
			if name = strings.ReplaceAll(name, "-", "_"); name != "" {
				args[name] = append(args[name], value)
			}
		}
		return true
	}
	for _, c := range printable(s) + " " {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted, c == '?' && !quoted && word.Len() == 0:
			if !take() {
				return args
			}
		default:
			word.WriteRune(c)
		}
	}
	take()
	return args
}

// argHas reports whether one of the values of a word, split at commas, is value.
func (f *facts) argHas(name, value string) bool {
	values, _ := f.arg(name)
	for _, v := range values {
		if slices.Contains(strings.Split(v, ","), value) {
			return true
		}
	}
	return false
}

// startHost begins to read the topology concurrently.
func (f *facts) startHost() {
	if f.topoDone != nil {
		return
	}
	f.topoDone = make(chan struct{})
	go func() {
		defer close(f.topoDone)
		f.topo, f.topoErr = topology.Read(f.path)
	}()
}

// host returns the topology, or nil if it cannot be read.
func (f *facts) host() *topology.Host {
	f.startHost()
	<-f.topoDone
	return f.topo
}

// processes returns the PIDs of the processes with a name (comm), ascending.
func (f *facts) processes(name string) []int {
	if f.procs == nil {
		f.procs = map[string][]int{}
		for _, pid := range f.numbered("/proc", "") {
			s, err := f.read("/proc/" + pid + "/comm")
			if n, bad := strconv.Atoi(pid); err == nil && bad == nil {
				comm := strings.TrimSpace(s)
				f.procs[comm] = append(f.procs[comm], n)
			}
		}
	}
	return f.procs[name]
}

// answer is the output of a program. It runs concurrently with the reading of files.
type answer struct {
	done chan struct{}
	out  string
	err  error
}

// ask returns a program's output; the first call starts it.
func (f *facts) ask(name string, args ...string) (string, error) {
	a := f.start(name, args...)
	<-a.done
	return a.out, a.err
}

func (f *facts) start(name string, args ...string) *answer {
	key := name + "\x00" + strings.Join(args, "\x00")
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.answers[key]; a != nil {
		return a
	}
	a := &answer{done: make(chan struct{})}
	f.answers[key] = a
	if f.run == nil {
		a.err = errCaptured
		close(a.done)
		return a
	}
	go func() {
		defer close(a.done)
		out, err := f.run(f.ctx, name, args...)
		if len(out) > fileMax {
			out = out[:fileMax]
		}
		a.out, a.err = string(out), err
	}()
	return a
}

// startSlow starts the slow operations that rows of the list need, so that they run while files are read: the
// topology, and QEMU.
func (f *facts) startSlow(list []Row) {
	const few = 8
	if len(list) > few {
		f.startHost()
	}
	for i := range list {
		if list[i].Group == QEMU {
			f.start(qemuProgram, "-device", "help")
			f.start(qemuProgram, "-version")
			return
		}
	}
}
