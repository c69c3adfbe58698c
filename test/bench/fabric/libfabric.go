package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// libfabric measures at its level: the provider, shm, and the physical limits.
func libfabric(provider string) error {
	ways := []struct {
		name, arg string
		env       []string
	}{
		{"raw", "raw", nil},
		{"ivshmem", "ivshmem", nil},
		{"ivshmem-nocma", "ivshmem", []string{"FI_IVSHMEM_CMA=0"}},
		{"shm", "shm", nil},
		{"shm-nocma", "shm", []string{"FI_SHM_DISABLE_CMA=1"}},
	}
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}
	t := newTable(names...)
	for i := 0; i < *runs; i++ {
		for _, w := range ways {
			cmd := exec.Command(filepath.Join(*build, "test/bench/fabric/c/fabric_bench"), w.arg)
			cmd.Env = append(os.Environ(), append(w.env, "FI_PROVIDER_PATH="+provider)...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			s := bufio.NewScanner(bytes.NewReader(out))
			for s.Scan() {
				var k key
				var v float64
				if _, err := fmt.Sscan(s.Text(), &k.what, &k.bytes, &v); err != nil {
					return fmt.Errorf("%s printed %q", w.name, s.Text())
				}
				t.add(w.name, k, v)
			}
		}
	}
	t.print("libfabric, two processes on two cores")
	raw, ok := median(t.samples["raw"][key{"latency", 8}])
	ours, ok2 := median(t.samples["ivshmem"][key{"latency", 8}])
	if ok && ok2 {
		fmt.Printf("8 B over the raw cache-line ping-pong of this run: %.2f (to reach: 1.5)\n", ours/raw)
	}
	return nil
}

// environ is the process's environment with more entries, of which later ones win.
func environ(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FI_") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}
