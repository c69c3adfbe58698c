package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/host/check"
	"nearmetal/internal/text"
)

// Options state how hosts are queried.
type Options struct {
	Via     string // ssh or pdsh
	Profile check.Profile
	Only    []string
	Timeout time.Duration // per host; 0: a minute
	// Done is called after each host's answer, with the number of answers; it may be nil.
	Done func(n int)
}

// atOnce is how many hosts are queried over ssh at the same time.
const atOnce = 32

// Gather collects the reports of all targets, in their order. A host that does not answer is reported in its Error.
func Gather(ctx context.Context, list []Target, o Options) []Host {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	hosts := make([]Host, len(list))
	var mu sync.Mutex
	n := 0
	done := func() {
		mu.Lock()
		defer mu.Unlock()
		if n++; o.Done != nil {
			o.Done(n)
		}
	}
	var remote []int
	for i, t := range list {
		hosts[i].Name = t.Host
		if t.File == "" {
			remote = append(remote, i)
			continue
		}
		hosts[i].Name = strings.TrimSuffix(filepath.Base(t.File), ".json")
		hosts[i].take(readReport(t.File))
		done()
	}
	if o.Via == "pdsh" {
		askPdsh(ctx, hosts, remote, o)
		return hosts
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, i := range remote {
		g.Go(func() error {
			defer done()
			hosts[i].take(askSSH(ctx, hosts[i].Name, o))
			return nil // each host keeps its own error
		})
	}
	g.Wait()
	return hosts
}

func (h *Host) take(r *check.Report, err error) {
	if err != nil {
		h.Error = err.Error()
		return
	}
	h.Report = r
}

func readReport(path string) (*check.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, reportMax+1))
	if err != nil {
		return nil, err
	}
	return parseReport(b)
}

// parseReport parses the output of check --json.
func parseReport(b []byte) (*check.Report, error) {
	if len(b) > reportMax {
		return nil, fmt.Errorf("a report of more than %d bytes", reportMax)
	}
	var r check.Report
	if json.Unmarshal(b, &r) != nil {
		return nil, errors.New("not a report of nearmetal check --json")
	}
	return &r, r.Sane()
}

// remoteCommand returns the command for each host, in words that need no quotes.
func remoteCommand(o Options) []string {
	c := []string{"nearmetal", "check", "--json"}
	if o.Profile != "" {
		c = append(c, "--for", string(o.Profile))
	}
	if len(o.Only) > 0 {
		c = append(c, "--only", strings.Join(o.Only, ","))
	}
	return c
}

func askSSH(ctx context.Context, host string, o Options) (*check.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	args := append([]string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", host}, remoteCommand(o)...)
	cmd := exec.CommandContext(ctx, "ssh", args...)
	cmd.WaitDelay = time.Second
	var out, errs bounded
	out.max, errs.max = reportMax, 4096
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return answer(ctx, out.Bytes(), errs.String(), err)
}

// answer parses a host's output. Status 1 with a report means failed checks.
func answer(ctx context.Context, out []byte, errs string, err error) (*check.Report, error) {
	r, bad := parseReport(out)
	if bad == nil {
		return r, nil
	}
	switch said := text.LastLine(errs); {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, errors.New("no answer in time")
	case said != "":
		return nil, errors.New(said)
	case err != nil:
		return nil, err
	}
	return nil, bad
}

// askPdsh queries all hosts with one pdsh, whose lines begin with "HOST: ".
func askPdsh(ctx context.Context, hosts []Host, which []int, o Options) {
	if len(which) == 0 {
		return
	}
	var names []string
	at := map[string]int{}
	for _, i := range which {
		names = append(names, hosts[i].Name)
		at[hosts[i].Name] = i
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout+time.Duration(len(which)/atOnce)*o.Timeout)
	defer cancel()
	args := append([]string{"-f", fmt.Sprint(atOnce), "-w", strings.Join(names, ",")}, remoteCommand(o)...)
	cmd := exec.CommandContext(ctx, "pdsh", args...)
	cmd.WaitDelay = time.Second
	var out, errs bounded
	out.max, errs.max = reportMax*min(len(which), 64), 1<<20
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	said, complaints := byHost(out.Bytes(), at), byHost(errs.Bytes(), at)
	for n, i := range which {
		name := hosts[i].Name
		why := string(complaints[name])
		if why == "" && len(said[name]) == 0 {
			why = text.LastLine(errs.String())
		}
		hosts[i].take(answer(ctx, said[name], why, err))
		if o.Done != nil {
			o.Done(n + 1)
		}
	}
}

// byHost sorts lines "HOST: TEXT" by their hosts; other lines are dropped.
func byHost(b []byte, known map[string]int) map[string][]byte {
	m := map[string][]byte{}
	for _, line := range bytes.SplitAfter(b, []byte("\n")) {
		host, text, ok := bytes.Cut(line, []byte(": "))
		if _, ours := known[string(host)]; ok && ours {
			m[string(host)] = append(m[string(host)], text...)
		}
	}
	return m
}

// bounded keeps the first max bytes and fails on more.
type bounded struct {
	bytes.Buffer
	max int
}

func (l *bounded) Write(b []byte) (int, error) {
	if l.Len()+len(b) > l.max {
		return 0, errors.New("the answer is too long")
	}
	return l.Buffer.Write(b)
}
