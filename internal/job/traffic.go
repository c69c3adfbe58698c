package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
	"nearmetal/internal/traffic"
)

// trafficTime bounds the collection of counts from the VMs.
const trafficTime = time.Minute

// Traffic makes a Run count its ranks' messages.
type Traffic struct {
	// Dir is a directory that is made for the VMs' counts, which traffic.ReadDir reads; "": they are not kept.
	Dir string
	// Done is called with the ranks' exchanged messages when the command has ended, successfully or not.
	Done func(*traffic.Matrix)
	// Carried is called instead of Done if the VMs have no provider and no rank counted, with the bytes that their
	// interfaces carried while the command ran.
	Carried func([]traffic.Carried)
}

// trafficDir is where the ranks of a VM write their counts: in memory, and in no share.
func trafficDir() string { return fmt.Sprintf("/dev/shm/nearmetal-traffic-%d", os.Geteuid()) }

// counted returns a cluster file whose commands count their messages. The old one is unchanged.
func counted(s *spec.Cluster) *spec.Cluster {
	c := *s
	c.Env = maps.Clone(s.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	c.Env[traffic.Variable] = trafficDir()
	return &c
}

// traffic collects the counts of the VMs. Missing counts are reported as a notice.
func (j *running) traffic() {
	cl, err := client.Connect(context.Background(), j.c.Name())
	if err != nil {
		return
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), trafficTime)
	defer cancel()
	r := j.c.Record()
	texts := make([][]byte, len(r.VMs))
	errs := make([]error, len(r.VMs))
	var wg sync.WaitGroup
	for i, v := range r.VMs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			texts[i], errs[i] = trafficOf(ctx, cl, v.Name)
		}()
	}
	wg.Wait()
	var list []traffic.Counts
	for i, v := range r.VMs {
		c, err := traffic.Read(bytes.NewReader(texts[i]), v.Name)
		list = append(list, c...)
		if err = errors.Join(errs[i], err); err != nil {
			j.o.Notice(text.Clean(v.Name + ": " + err.Error()))
		}
		if j.o.Traffic.Dir != "" && len(c) > 0 {
			if err := os.WriteFile(filepath.Join(j.o.Traffic.Dir, v.Name), texts[i], 0o600); err != nil {
				j.o.Notice("the counts of messages are not kept: " + err.Error())
			}
		}
	}
	if len(list) == 0 && Uncounted(&r) {
		j.o.Traffic.Carried(Carried(r.VMs, j.before, Interfaces(r.Name)))
		return
	}
	m := traffic.Of(list)
	m.Advise(Places(&r))
	j.o.Traffic.Done(m)
}

// trafficOf reads the counts that ranks left in a VM, at most traffic.MaxBytes.
func trafficOf(ctx context.Context, c *client.Client, vm string) ([]byte, error) {
	e := session.Caller([]string{"/bin/sh", "-c", `cd "$1" 2>/dev/null || exit 0; for f in *; do [ ! -f "$f" ] || cat "$f"; done`, "sh", trafficDir()},
		[]string{"PATH=/usr/bin:/bin"})
	e.Dir = "/"
	c.Record.Caller.Become(&e)
	out := &bounded{left: traffic.MaxBytes}
	_, err := session.Run(ctx, c.VM(vm), e, session.Streams{Out: out, Err: session.Discard.Err}, nil)
	return out.b.Bytes(), err
}

// bounded keeps the bytes written to it, up to a limit.
type bounded struct {
	b    bytes.Buffer
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, fmt.Errorf("its ranks left more than %d MiB of counts", traffic.MaxBytes>>20)
	}
	w.left -= len(p)
	return w.b.Write(p)
}

// Places returns the places of a cluster's VMs in the plan.
func Places(r *state.Record) map[string]traffic.Place {
	list := map[string]traffic.Place{}
	if r.Plan == nil {
		return list
	}
	for _, v := range r.Plan.VMs {
		p := traffic.Place{Host: v.Host}
		var nodes []int
		for _, n := range v.Nodes {
			nodes = append(nodes, n.HostNodes...)
		}
		for _, d := range v.Devices {
			p.Far = p.Far || d.HostNode >= 0 && len(nodes) > 0 && !slices.Contains(nodes, d.HostNode)
		}
		list[v.Name] = p
	}
	return list
}
