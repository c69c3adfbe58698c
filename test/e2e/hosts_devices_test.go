package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// perftest are its programs, each of which runs a server in one VM and a client in another.
var perftest = []string{"ib_send_lat", "ib_send_bw", "ib_read_lat", "ib_read_bw", "ib_write_lat", "ib_write_bw"}

// Three VMs on two hosts, with soft RoCE: perftest's server and client are on different hosts, an MPI program receives
// what comes first from whomever, by the region and by verbs at once, and a device that has gone is named before an
// MPI program waits for it.
func TestHostsDevices(t *testing.T) {
	b := newBed(t)
	needs(t, append([]string{"mpirun.openmpi", "rdma"}, perftest...)...)
	b.nm(append([]string{"up", "--name", "three", "--hosts", "alpha,beta", "--vms", "3", "--vcpus", "1", "--network", "rxe", "--no-share"}, small...)...).want(t, 0)
	var three struct {
		VMs []struct{ Name, Host string }
	}
	if err := json.Unmarshal([]byte(b.nm("ps", "--json", "three").want(t, 0).out), &three); err != nil || len(three.VMs) != 3 {
		t.Fatalf("%v: %+v", err, three)
	}
	on := map[string][]string{}
	for _, v := range three.VMs {
		on[v.Host] = append(on[v.Host], v.Name)
	}
	if len(on["alpha"]) != 2 || len(on["beta"]) != 1 {
		t.Fatalf("%v", on)
	}
	near, far := on["alpha"][0], on["beta"][0]
	b.nm("ps", "three").want(t, 0, "VMs of one host go by the region", "VMs of different hosts go by verbs over rxe0 port 1 (RoCE v2, GID 1)")

	t.Run("perftest", func(t *testing.T) {
		for _, program := range perftest {
			t.Run(program, func(t *testing.T) { b.perftest(t, "three", near, far, program) })
		}
	})
	t.Run("wildcard", func(t *testing.T) {
		program := filepath.Join(b.dir, "pairs")
		if out, err := exec.Command("mpicc.openmpi", "-O2", "-o", program, "../slurm/testdata/pairs.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := b.command("exec", "three", "--", "mpirun.openmpi", "-n", "3", program)
		cmd.Env = append(cmd.Env, logChannels...)
		r := finish(t, cmd, "").want(t, 0, "on vm0: right", "on vm1: right", "on vm2: right")
		if u := channels(r); len(u) != 3 || u.count(overRegion) != 2 || u.count(overCore) != 3 {
			t.Errorf("channels: %q", u)
		}
	})
	t.Run("kernels", func(t *testing.T) {
		for _, name := range []string{"nm_latency", "nm_bw"} {
			b.nm("exec", "three", "--", "mpirun.openmpi", "-n", "2", "--host", near+","+far, kernels+"/"+name, "--sizes", "8").
				want(t, 0, "rank 0: "+near, "rank 1: "+far)
		}
	})
	t.Run("gone", func(t *testing.T) {
		b.nm("exec", "three/"+far, "--", "rdma", "link", "delete", "rxe0").want(t, 0)
		r := b.nm("exec", "three", "--", "mpirun.openmpi", "-n", "3", "hostname").
			want(t, 125, fmt.Sprintf("device rxe0 of %s on host beta has gone since the VM booted", far))
		oneLine(t, r)
	})
	b.nm("down", "three").want(t, 0)
	b.quiet(everyDir...)
}

// perftest runs one of perftest's programs, its server in one VM and its client in another.
func (b *bed) perftest(t *testing.T, cluster, server, client, program string) {
	args := []string{program, "-d", "rxe0", "-x", "1", "-F", "-s", "8", "-n", "100"}
	serves := b.command(append([]string{"exec", cluster + "/" + server, "--"}, args...)...)
	said := newReader()
	serves.Stdout, serves.Stderr = said, said
	if err := serves.Start(); err != nil {
		t.Fatal(err)
	}
	b.launched = append(b.launched, serves)
	// It listens a moment after its first line at the latest; a client that comes before is refused.
	var r result
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		r = b.nm(append(append([]string{"exec", cluster + "/" + client, "--"}, args...), server)...)
		if r.code == 0 || time.Now().After(end) {
			break
		}
	}
	r.want(t, 0, "rxe0", " 8  ")
	if err := serves.Wait(); err != nil {
		t.Errorf("the server: %v: %s", err, said)
	}
	t.Log(strings.TrimSpace(lastLines(r.out, 3)))
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	l := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(l[max(0, len(l)-n):], "\n")
}
