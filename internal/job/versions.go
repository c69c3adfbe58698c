package job

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
)

// Bounds of the query for a launcher's version in a VM.
const (
	versionTime  = time.Minute // an emulated VM first reads the program from its host
	versionBytes = 64 << 10
)

// sameMPI returns an error if the launcher that e starts belongs to another MPI, or another version, on the hosts
// reached by ssh: each has its own files, and ranks of two versions wait for each other forever. If it is not found,
// or its version is not known, its start will report more.
func sameMPI(ctx context.Context, c *client.Client, e guest.Exec) error {
	if len(c.Record.Remote) < 2 || len(e.Args) == 0 || !launch.Named(e.Args[0]) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	found := make([]launch.Launcher, len(c.Record.Remote))
	var wg sync.WaitGroup
	for i, h := range c.Record.Remote {
		if len(h.VMs) == 0 {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			found[i], _ = launch.Said(e.Args[0], versionIn(ctx, c.VM(h.VMs[0]), e))
		}()
	}
	wg.Wait()
	first := -1
	for i, l := range found {
		switch {
		case l.Library == "":
		case first < 0:
			first = i
		case l.Library != found[first].Library || l.Version != found[first].Version:
			return fmt.Errorf("%s is %s on host %s and %s on host %s: the ranks of one program need one version of one MPI; name it by a path that all hosts have",
				e.Args[0], found[first], c.Record.Remote[first].Name, l, c.Record.Remote[i].Name)
		}
	}
	return nil
}

// versionIn returns the output of the launcher's --version in a VM; "": no readable output.
func versionIn(ctx context.Context, vm *guest.Client, e guest.Exec) string {
	e.Args, e.NoStdin = []string{"/bin/sh", "-c", `exec "$0" --version 2>&1`, e.Args[0]}, true
	p, err := vm.Start(e)
	if err != nil {
		return ""
	}
	stop := context.AfterFunc(ctx, func() { p.Close() })
	defer stop()
	defer p.Close()
	text, _ := io.ReadAll(io.LimitReader(p.Stdout, versionBytes))
	return string(text)
}
