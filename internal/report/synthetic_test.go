package report

import (
	"encoding/json"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"nearmetal/internal/bench/record"
)

// synthetic returns a run of invented numbers with every kind of experiment. None of them was measured.
func synthetic() (*record.Run, []record.Sample) {
	at := time.Date(2026, 11, 22, 0, 45, 0, 0, time.UTC)
	run := &record.Run{Version: 1, ID: "20261122-004500-synthetic", Nearmetal: "synthetic", Started: at, Ended: at.Add(17 * time.Minute),
		Command: []string{"nearmetal", "bench", "run", "demo"},
		Host:    record.Host{Name: "synthetic", CPU: "made-up CPU", Cores: 48, Threads: 96, Nodes: 2, MemoryBytes: 384 << 30, Kernel: "6.1.0", Acceleration: "kvm", Versions: map[string]string{"mpirun": "Open MPI 4.1.4", "qemu": "7.2"}},
		Variants: []record.Variant{
			{Label: "native.48", Kind: "native", Cores: 48, Description: "made up"},
			{Label: "native.44", Kind: "native", Cores: 44, Description: "made up, as many cores as the VM"},
			{Label: "VM.44", Kind: "vm", Cores: 44, KeptBack: 4, Description: "made up"},
			{Label: "VM.44.untuned", Kind: "vm", Cores: 44, KeptBack: 4, Ablated: []string{"vnuma"}, Description: "made up"},
			{Label: "VM.2", Kind: "vm", Cores: 2, Emulated: true, Description: "made up"},
		},
		Checks:  json.RawMessage(`{"rows":[{"title":"Huge pages","status":"ok","found":"22 GiB","wanted":"memory of the VMs"},{"title":"Power profile","status":"warn","found":"powersave","wanted":"performance"}]}`),
		PlanSVG: `<svg xmlns="http://www.w3.org/2000/svg" width="300" height="60"><rect width="300" height="60" fill="#fff"/><text x="10" y="30">plan, made up</text></svg>`,
	}
	draw := rand.New(rand.NewSource(1))
	var samples []record.Sample
	factor := []float64{1, 1.04, 1.05, 1.35, 60}
	add := func(c *record.Case, point map[string]string, time float64) {
		for rep := -1; rep < 7; rep++ {
			for v, f := range factor {
				if v == 4 && c.Kind != "size" || v == 3 && c.Kind == "bar" {
					continue
				}
				value := time * f * (1 + 0.02*draw.NormFloat64())
				if c.Better == "up" {
					value = 1 / value
				}
				samples = append(samples, record.Sample{Case: c.Name, Variant: run.Variants[v].Label, Point: point, Rep: rep, Value: value, OK: true, At: at, Seconds: 1})
			}
		}
	}
	new := func(c record.Case) *record.Case {
		run.Cases = append(run.Cases, c)
		return &run.Cases[len(run.Cases)-1]
	}
	c := new(record.Case{Name: "osu/latency", Title: "Point-to-point latency", Suite: "osu", Program: "made up", Command: []string{"mpirun", "-n", "2", "nm_latency"}, Metric: "latency", Unit: "us", Better: "down", Kind: "size", X: "size", Seed: "002 fig 20", Hosts: 2})
	for e := range 23 {
		size := math.Ldexp(1, e)
		add(c, map[string]string{"size": strconv.Itoa(1 << e)}, 0.6+size/11000)
	}
	c = new(record.Case{Name: "osu/bw", Title: "Bandwidth", Suite: "osu", Program: "made up", Metric: "bandwidth", Unit: "GB/s", Better: "up", Kind: "size", X: "size", Seed: "002 fig 17", Hosts: 2, Differs: map[string]string{"002": "iterations 10 instead of 1000"}})
	for e := range 23 {
		add(c, map[string]string{"size": strconv.Itoa(1 << e)}, 1/11.5+220/math.Ldexp(1, e))
	}
	c = new(record.Case{Name: "lammps/eam", Title: "LAMMPS, EAM metallic solid", Suite: "lammps", Program: "made up", Metric: "time", Unit: "s", Better: "down", Kind: "scaling", X: "nodes", Seed: "002 fig 31"})
	for _, n := range []int{1, 2, 4, 8, 16} {
		add(c, map[string]string{"nodes": strconv.Itoa(n)}, 400/float64(n)+3*math.Log2(float64(n)))
	}
	c = new(record.Case{Name: "hpcc/hpl", Title: "HPL", Suite: "hpcc", Program: "made up", Metric: "speed", Unit: "Gflop/s", Better: "up", Kind: "sweep", X: "n", Seed: "004 fig 14"})
	for _, grid := range []string{"1x4", "2x2", "4x1"} {
		for _, n := range []int{2000, 5000, 10000, 20000} {
			add(c, map[string]string{"n": strconv.Itoa(n), "grid": grid}, 0.012*(1+2000/float64(n))*float64(1+len(grid[:1])))
		}
	}
	c = new(record.Case{Name: "npb/class-c", Title: "NAS parallel benchmarks, class C", Suite: "npb", Program: "made up", Metric: "time", Unit: "s", Better: "down", Kind: "bar", X: "program", Seed: "003 p 28"})
	for i, name := range []string{"IS", "EP", "CG", "MG", "FT", "BT", "SP", "LU"} {
		add(c, map[string]string{"program": name}, 10+float64(i*3%11))
	}
	return run, samples
}

// writeRun writes a run's directory and returns its name.
func writeRun(t testing.TB, run *record.Run, samples []record.Sample) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run.ID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for i := range samples {
		if err := e.Encode(&samples[i]); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// reportOf reads a run's directory and builds its report.
func reportOf(t testing.TB, dir, paper string) *Report {
	t.Helper()
	d, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build([]*Data{d}, Options{Paper: paper, Now: time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
