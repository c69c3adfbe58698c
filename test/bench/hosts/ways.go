package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"nearmetal/internal/stats"
	"nearmetal/test/slurm/bed"
)

// job is a job that runs, with two VMs on each of two nodes.
type job struct {
	b   *bed.Bed
	id  string
	dir string // with the programs; the VMs share it
}

// way is how Open MPI's messages go.
type way struct {
	name string
	env  []string
	// proof is what each rank says when it goes this way: without it a run is not a figure.
	proof *regexp.Regexp
	why   string // it is left out
}

// The provider says at its end what each rank used; Open MPI says which provider's device it took.
var (
	overVerbs  = []string{"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl,domain", "FI_IVSHMEM_TIMEOUT=200000"}
	usedVerbs  = regexp.MustCompile(`ranks on other hosts are reached over verbs;ofi_rxm`)
	verbsAlone = way{name: "verbs;ofi_rxm", env: []string{"OMPI_MCA_opal_common_ofi_provider_include=verbs;ofi_rxm", "OMPI_MCA_mtl_base_verbose=1",
		"OMPI_MCA_opal_common_ofi_verbose=1"}, proof: regexp.MustCompile(`mtl:ofi:provider(:domain)?: rxe0`)}
	overUCX = way{name: "UCX", env: []string{"OMPI_MCA_pml=ucx", "OMPI_MCA_opal_common_ucx_tls=any", "OMPI_MCA_opal_common_ucx_devices=any",
		"UCX_TLS=rc,self", "UCX_NET_DEVICES=rxe0:1", "UCX_IB_GID_INDEX=1"}}
)

// tries is how often a program is run that fails.
const tries = 4

// most is how long a program may take: it has hung.
const most = 2 * time.Minute

// run runs a program of n ranks, perNode on each node, and returns what it printed.
func (j *job) run(w *way, n, perNode int, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	args := append([]string{"--jobid=" + j.id, "--overlap", "-N2", fmt.Sprint("-n", n), fmt.Sprint("--ntasks-per-node=", perNode), "--mpi=pmix"}, words...)
	base := j.b.Command("srun", args...)
	cmd := exec.CommandContext(ctx, base.Path, args...)
	cmd.Dir, cmd.Env = j.dir, append(base.Env, w.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("not over after %s", most)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, tail(errs.String()))
	}
	if w.proof != nil {
		if got := len(w.proof.FindAllString(out.String()+errs.String(), -1)); got < n {
			return "", fmt.Errorf("%d of %d ranks went this way: %s", got, n, tail(errs.String()))
		}
	}
	return out.String(), nil
}

func tail(text string) string {
	text = strings.TrimSpace(text)
	if n := len(text) - 600; n > 0 {
		text = "…" + text[n:]
	}
	return text
}

// figures are a program's medians, by the message's size in bytes; of nm_cg its time in s, at 0.
func figures(out string) map[int]float64 {
	list := map[int]float64{}
	for _, line := range strings.Split(out, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 4 && f[1] == "time" && f[3] == "s":
			list[0], _ = strconv.ParseFloat(f[2], 64)
		case len(f) == 6 && f[0] != "#": // bytes, iterations, mean, min, median, p99
			size, err1 := strconv.Atoi(f[0])
			v, err2 := strconv.ParseFloat(f[4], 64)
			if err1 == nil && err2 == nil {
				list[size] = v
			}
		}
	}
	return list
}

// table is one program over several ways.
type table struct {
	title   string
	better  string // "less" or "more"
	words   []string
	samples []map[int][]float64 // by way
}

// measure runs the tables' programs over the ways in turns, and prints medians and the first way's ratio to the
// others, above 1 where it is better. A way that fails each time in the first round, which does not count, is left out.
func (j *job) measure(ways []*way, ranks, perNode int, tables []*table) error {
	for round := -1; round < *rounds; round++ {
		for _, t := range tables {
			for i, w := range ways {
				if t.samples == nil {
					t.samples = make([]map[int][]float64, len(ways))
				}
				if w.why != "" {
					continue
				}
				fmt.Fprintf(os.Stderr, "\rround %d of %d, %s, %-40s", round+1, *rounds, t.words[0], w.name)
				begin := time.Now()
				words := append([]string{"./" + t.words[0]}, t.words[1:]...)
				out, err := j.run(w, ranks, perNode, words...)
				// Open MPI 4.1 over verbs;ofi_rxm alone now and then ends in a segmentation fault.
				for try := 1; err != nil && try < tries; try++ {
					out, err = j.run(w, ranks, perNode, words...)
				}
				got := figures(out)
				if *verbose {
					fmt.Fprintf(os.Stderr, "%.1f s: %v %v\n", time.Since(begin).Seconds(), got, err)
				}
				if err == nil && len(got) == 0 {
					err = fmt.Errorf("%s printed no figures: %s", t.words[0], tail(out))
				}
				switch {
				case err != nil && round < 0:
					w.why = err.Error()
				case err != nil:
					fmt.Fprintf(os.Stderr, "\nbench-hosts: %s, %s, round %d left out: %v\n", t.words[0], w.name, round+1, err)
				case round >= 0:
					if t.samples[i] == nil {
						t.samples[i] = map[int][]float64{}
					}
					for size, v := range got {
						t.samples[i][size] = append(t.samples[i][size], v)
					}
				}
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r%60s\r", "")
	for _, t := range tables {
		t.print(ways)
	}
	for _, w := range ways {
		if w.why != "" {
			fmt.Printf("left out: %s: %s\n", w.name, strings.ReplaceAll(w.why, "\n", " | "))
		}
	}
	if ways[0].why != "" {
		return fmt.Errorf("%s has no figures", ways[0].name)
	}
	return nil
}

func (t *table) print(ways []*way) {
	fmt.Printf("\n%s\n", t.title)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "bytes\t")
	for i, w := range ways {
		if len(t.samples[i]) == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t", w.name)
		if i > 0 {
			fmt.Fprint(tw, "ratio\t")
		}
	}
	fmt.Fprintln(tw)
	var sizes []int
	for size := range t.samples[0] {
		sizes = append(sizes, size)
	}
	sort.Ints(sizes)
	for _, size := range sizes {
		fmt.Fprintf(tw, "%d\t", size)
		first := stats.Median(t.samples[0][size])
		for i := range ways {
			if len(t.samples[i]) == 0 {
				continue
			}
			v := stats.Median(t.samples[i][size])
			fmt.Fprintf(tw, "%.4g\t", v)
			if i > 0 && t.better == "more" {
				fmt.Fprintf(tw, "%.2f\t", first/v)
			} else if i > 0 {
				fmt.Fprintf(tw, "%.2f\t", v/first)
			}
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
}

// withEarlier adds the providers of -earlier to ways, whose first is this build's.
func withEarlier(ways []*way) []*way {
	for _, folder := range strings.FieldsFunc(*earlier, func(r rune) bool { return r == ',' }) {
		was := *ways[0]
		was.name = filepath.Base(folder)
		was.env = append([]string{"FI_PROVIDER_PATH=" + folder}, was.env...)
		ways = append(ways, &was)
	}
	return ways
}

// pair is two ranks, one on each host.
func (j *job) pair() error {
	alone, ucx := verbsAlone, overUCX
	ways := withEarlier([]*way{{name: "nearmetal over verbs;ofi_rxm", env: overVerbs, proof: usedVerbs}, &alone, &ucx})
	fmt.Println("\ntwo hosts, a rank on each, soft RoCE, Open MPI 4.1")
	return j.measure(ways, 2, 1, []*table{
		{title: "latency, us", words: []string{"nm_latency", "--sizes", "8:64KiB", "--iterations", "60:10", "--warmup", "6:1", "--time-limit", "0.2"}},
		{title: "bandwidth, MB/s", better: "more", words: []string{"nm_bw", "--sizes", "4KiB:256KiB", "--iterations", "6:3", "--warmup", "1:1", "--window", "16", "--time-limit", "0.2"}},
	})
}

// four is four ranks, each in a VM of its own, two on each host.
func (j *job) four() error {
	alone, ucx := verbsAlone, overUCX
	ways := []*way{
		{name: "region and verbs", env: overVerbs, proof: usedVerbs},
		&alone,
		&ucx,
		{name: "ob1 over TCP", env: []string{"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader,tcp"}},
	}
	ways = withEarlier(ways)
	fmt.Println("\ntwo hosts, two VMs with a rank each on each of them, Open MPI 4.1")
	coll := func(name string) *table {
		return &table{title: name + ", us", words: []string{"nm_coll", name, "--sizes", "8:16KiB", "--iterations", "20:10", "--warmup", "3:1", "--time-limit", "0.2"}}
	}
	return j.measure(ways, 4, 2, []*table{coll("allreduce"), coll("alltoall"),
		{title: "nm_cg --grid 32, s", words: []string{"nm_cg", "--grid", "32"}}})
}
