package job

import (
	"context"
	"sync"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/session"
)

// answerMax bounds a VM's answer to Ask, in bytes.
const answerMax = 64 << 10

// Ask runs a shell's command line as the caller in each VM of a running cluster concurrently, and returns its output
// by VM. A VM in which it did not end with status 0, or whose output was too long, is omitted. The VMs supply the
// answers, which are not trusted.
func Ask(ctx context.Context, name, script string) (map[string][]byte, error) {
	c, err := client.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	e := session.Caller([]string{"/bin/sh", "-c", script}, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
	e.Dir = "/"
	answers := map[string][]byte{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, v := range c.Record.VMs {
		if v.State != state.Ready {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			out := limited{max: answerMax}
			errs := limited{max: answerMax}
			if st, err := session.Run(ctx, c.VM(v.Name), e, session.Streams{Out: &out, Err: &errs}, nil); err != nil || st.ExitCode() != 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[v.Name] = out.Bytes()
		}()
	}
	wg.Wait()
	return answers, nil
}
