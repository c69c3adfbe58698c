package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

var tuneNames = flag.String("tune", "", "constants of fabric/tune.h that the table tune is of, separated by commas; all if empty")

// tuned are the constants of fabric/tune.h that the table tune is of, by the figures that they can change.
var tuned = []struct {
	figures string // fabric_bench's words, and what is set in the environment
	env     []string
	names   []string
	built   bool // an array has its size of them: a build for each value
}{
	{"few ivshmem", nil, []string{"IVS_RUN_LENGTH", "IVS_QUIET_CYCLES", "IVS_EAGER_RECEIVE_MAX", "IVS_AHEAD_LINES", "IVS_OWN_LINES",
		"IVS_SPIN_POLLS", "IVS_SPIN_CALL", "IVS_SPIN_MISSES", "IVS_SPIN_PROBE", "IVS_COPY_SMALL", "IVS_CHECK_TICKS",
		"IVS_CMA_BUSY_MIN", "IVS_CMA_POLICY_PROBE",
		"IVS_COOP_PIECE_MIN", "IVS_COOP_PIECE_MAX", "IVS_COOP_HALVED", "FI_IVSHMEM_CMA_COOP"}, false},
	{"few ivshmem", []string{"FI_IVSHMEM_CMA=0", "FI_IVSHMEM_RANKS=16"}, []string{"IVS_POOL_FIRST", "IVS_POOL_TURNS", "IVS_PUMP_MAX",
		"IVS_NT_MIN", "IVS_NT_PROBE", "IVS_NT_MARGIN", "IVS_ADAPT_LEARN", "FI_IVSHMEM_WINDOW"}, false},
	{"senders ivshmem", nil, []string{"IVS_TURN_TICKS", "IVS_IDLE_TICKS"}, false},
	{"start ivshmem 64", nil, []string{"IVS_YIELD_AFTER", "IVS_YIELD_EACH"}, false},
	{"few ivshmem", []string{"FI_IVSHMEM_CMA=0"}, []string{"IVS_COST_LAST"}, true},
	{"puts ivshmem", []string{"FI_IVSHMEM_RANKS=16"}, []string{"IVS_TARGETS"}, true},
}

// parameters are the defaults of constants that a parameter of the provider's sets already, in bytes.
var parameters = map[string]string{"FI_IVSHMEM_CMA_COOP": "IVS_COOP_MIN", "FI_IVSHMEM_WINDOW": "IVS_WINDOW"}

// constant is a definition of fabric/tune.h: its name, value and comment. clang-format puts long ones on two lines.
var constant = regexp.MustCompile(`(?m)^#define (IVS_[A-Z_]+)(?:[ \t]|\\\n)+(.*?)[ \t]*(/\*.*)$`)

// tune returns the table of what half and twice the value of each tuning constant give in place of it, in turns with the
// provider as it is. Beside each group of figures stands the same provider once more: what differs there is noise.
func tune(b *bench) (*table, error) {
	t := newTable("tuning constants: half and twice the value beside the value")
	t.show = showTuned
	provider, values, err := b.tunedProvider("", 0)
	if err != nil {
		return nil, err
	}
	only := strings.Split(*tuneNames, ",")
	for i, g := range tuned {
		words := strings.Fields(g.figures)
		add := func(name, provider string, env ...string) {
			with := *b
			with.provider = provider
			name = fmt.Sprintf("%d:%s", i, name)
			t.ways = append(t.ways, with.fabric(name, words, slices.Concat(g.env, []string{"FI_IVSHMEM_TEST=1"}, env)...))
			if name != t.base(name) {
				t.compare(name, t.base(name))
			}
		}
		some := false
		for _, name := range g.names {
			if *tuneNames != "" && !slices.Contains(only, name) {
				continue
			}
			if !some {
				add("base", provider)
				add("again", provider)
				some = true
			}
			v, ok := values[name]
			if p := parameters[name]; p != "" {
				v, ok = values[p]
			}
			if !ok {
				return nil, fmt.Errorf("fabric/tune.h has no constant %s", name)
			}
			for _, c := range []struct {
				name  string
				value uint64
			}{{" n/2", v / 2}, {" 2n", 2 * v}} {
				p := provider
				if g.built {
					if p, _, err = b.tunedProvider(name, c.value); err != nil {
						return nil, err
					}
				}
				add(name+c.name, p, fmt.Sprintf("%s=%d", name, c.value))
			}
		}
	}
	if len(t.ways) == 0 {
		return nil, fmt.Errorf("-tune names no constant of the table")
	}
	return t, nil
}

// base returns the name of the way that a way of the table tune is compared with.
func (t *table) base(name string) string {
	group, _, _ := strings.Cut(name, ":")
	return group + ":base"
}

// showTuned prints a line for each value: the medians of the ratios of its figures, and the worst of all.
func showTuned(t *table) {
	fmt.Printf("\n%s: medians of the ratios of %d runs; above 1 that value is the better\n", t.title, *runs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "value\ttimes\trates\tall\tworst, at\tbest, at")
	for _, r := range t.ratios {
		var times, rates []float64
		var worst, best float64
		var worstAt, bestAt key
		for _, k := range t.keys() {
			v, _, ok := t.ratio(k, r)
			if !ok {
				continue
			}
			if k.moreIsBetter() {
				rates = append(rates, v)
			} else {
				times = append(times, v)
			}
			if worst == 0 || v < worst {
				worst, worstAt = v, k
			}
			if v > best {
				best, bestAt = v, k
			}
		}
		middle := func(v []float64) string {
			if m, ok := median(v); ok {
				return fmt.Sprintf("%.3f", m)
			}
			return "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.3f, %s %d\t%.3f, %s %d\n", r.ours, middle(times), middle(rates), middle(slices.Concat(times, rates)),
			worst, worstAt.what, worstAt.bytes, best, bestAt.what, bestAt.bytes)
	}
	w.Flush()
}

// tunedProvider builds the provider with the constants of the table as variables, which take their values from the
// environment when it is loaded. It returns its folder, and the values of all constants of fabric/tune.h. All ways of the
// table have this provider, so that what a variable costs beside a constant is in none of its ratios. The constant fixed,
// if it is not "", has another value in it.
func (b *bench) tunedProvider(fixed string, value uint64) (dir string, values map[string]uint64, err error) {
	dir = filepath.Join(b.tmp, fmt.Sprintf("tuned%s%d", fixed, value))
	text, err := os.ReadFile("fabric/tune.h")
	if err != nil {
		return "", nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, err
	}
	variable := map[string]bool{}
	for _, g := range tuned {
		for _, n := range g.names {
			variable[n] = !g.built
		}
	}
	var define, read, show strings.Builder
	header := constant.ReplaceAllStringFunc(string(text), func(line string) string {
		m := constant.FindStringSubmatch(line)
		fmt.Fprintf(&show, "\tprintf(\"%s %%llu\\n\", (unsigned long long) (%s));\n", m[1], m[1])
		if m[1] == fixed {
			return fmt.Sprintf("#define %s %d", fixed, value)
		}
		if !variable[m[1]] {
			return line
		}
		fmt.Fprintf(&define, "__typeof__(%s) tuned_%s = %s;\n", m[2], m[1], m[2])
		fmt.Fprintf(&read, "\tif (getenv(\"%s\"))\n\t\ttuned_%s = strtoull(getenv(\"%s\"), NULL, 10);\n", m[1], m[1], m[1])
		return fmt.Sprintf("extern __typeof__(%s) tuned_%s;\n#define %s tuned_%s", m[2], m[1], m[1], m[1])
	})
	files := map[string]string{
		"tune.h":   header,
		"tuned.c":  "#include <stdlib.h>\n#include \"tune.h\"\n" + define.String() + "static void __attribute__((constructor)) tuned(void)\n{\n" + read.String() + "}\n",
		"values.c": "#include <stdio.h>\n#include \"fabric/tune.h\"\nint main(void)\n{\n" + show.String() + "\treturn 0;\n}\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	out, err := exec.Command("sh", "-ec", `
		cc -I. -o "$1/values" "$1/values.c"
		cc -std=c11 -O3 -flto=auto -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -pthread \
			-I"$1" -Ifabric -Iinclude $(pkg-config --cflags libfabric) -o "$1/libivshmem-fi.so" \
			fabric/ofi/*.c fabric/proto/*.c fabric/remote/*.c fabric/ring/*.c fabric/object/*.c fabric/region/*.c fabric/base/*.c \
			"$1/tuned.c" -ldl >&2
		"$1/values"`, "sh", dir).Output()
	if err != nil {
		var said []byte
		if e, ok := err.(*exec.ExitError); ok {
			said = e.Stderr
		}
		return "", nil, fmt.Errorf("the provider with variables: %w\n%s", err, said)
	}
	values = map[string]uint64{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var name string
		var v uint64
		if _, err := fmt.Sscan(line, &name, &v); err != nil {
			return "", nil, fmt.Errorf("values of fabric/tune.h: %q: %w", line, err)
		}
		values[name] = v
	}
	return dir, values, nil
}
