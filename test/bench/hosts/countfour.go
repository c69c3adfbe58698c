package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The part countfour: MPI's collective operations in the VM of the part count. Two name spaces are two hosts of two
// ranks each, with a region each and soft RoCE between them. All four ranks share the vCPU.

// fourMost is how long a program may take on a busy machine.
const fourMost = 10 * time.Minute

// countFour prints the part countfour.
func countFour() error {
	ways := []*way{{name: "region and verbs"}, {name: "verbs;ofi_rxm"}, {name: "sm and TCP"}, {name: "UCX"}}
	words := []string{"ours", "verbs", "tcp", "ucx"} // four.sh's
	tables := []*table{
		{title: "allreduce, us", words: []string{"nm_coll", "allreduce", "--sizes", "8:128KiB", "--iterations", "20:10", "--warmup", "3:2"}},
		{title: "alltoall, us", words: []string{"nm_coll", "alltoall", "--sizes", "8:128KiB", "--iterations", "20:10", "--warmup", "3:2"}},
		{title: "nm_cg --grid 32, s", words: []string{"nm_cg", "--grid", "32"}},
	}
	return withCounted(fourScript, fourMost, func(dir string, inside func(...string) (string, error)) error {
		if err := kernels(dir, "nm_coll", "nm_cg"); err != nil {
			return err
		}
		for _, t := range tables {
			t.samples = make([]map[int][]float64, len(ways))
			for i, w := range ways {
				fmt.Fprintf(os.Stderr, "\r%-60s", strings.Join(t.words[:2], " ")+", "+w.name)
				out, err := inside(append([]string{words[i], filepath.Join(dir, t.words[0])}, t.words[1:]...)...)
				if errors.Is(err, context.Canceled) || err != nil && i == 0 {
					return err
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "\nbench-hosts: %s, %s left out: %v\n", t.words[0], w.name, err)
					continue
				}
				t.samples[i] = map[int][]float64{}
				for size, v := range figures(out) {
					t.samples[i][size] = []float64{v}
				}
			}
		}
		fmt.Fprintf(os.Stderr, "\r%60s\r", "")
		fmt.Println("\ntwo hosts of two ranks each on one vCPU, soft RoCE, Open MPI 4.1, by instructions, a nanosecond each")
		for _, t := range tables {
			t.print(ways)
		}
		return nil
	})
}
