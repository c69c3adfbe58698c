package job

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/guest"
	"nearmetal/internal/launch"
	"nearmetal/internal/session"
)

// Bounds of asking a VM for its devices.
const (
	deviceTime  = time.Minute
	deviceBytes = 4096
)

// lookDevices writes those of its arguments that are not there.
const lookDevices = `for f in "$@"; do [ -e "$f" ] || echo "$f"; done`

// launchable says what keeps the launcher that e starts from running in the VMs.
func launchable(ctx context.Context, c *client.Client, e guest.Exec) error {
	if err := sameMPI(ctx, c, e); err != nil {
		return err
	}
	return haveDevices(ctx, c, e)
}

// haveDevices says which device of the VMs has gone since they booted, before the launcher that e starts has its ranks
// use it: they would wait for each other, or end with a library's own words for it.
func haveDevices(ctx context.Context, c *client.Client, e guest.Exec) error {
	if len(e.Args) == 0 || !launch.Named(e.Args[0]) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTime)
	defer cancel()
	gone := make([]string, len(c.Record.VMs))
	var wg sync.WaitGroup
	for i, v := range c.Record.VMs {
		files := deviceFiles(v.Devices)
		if len(files) == 0 {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			gone[i] = missingDevice(ctx, c.VM(v.Name), files)
		}()
	}
	wg.Wait()
	for i, v := range c.Record.VMs {
		if gone[i] == "" {
			continue
		}
		where := v.Name
		if v.Host != "" {
			where += " on host " + v.Host
		}
		return fmt.Errorf("device %s of %s has gone since the VM booted, and MPI would wait for it: start the cluster again", gone[i], where)
	}
	return nil
}

// deviceFiles are the names of devices, RDMA or of a network, by the files that say that they are there.
func deviceFiles(list []guest.Device) map[string]string {
	files := map[string]string{}
	for _, d := range list {
		switch {
		case d.RDMA != "":
			files["/sys/class/infiniband/"+d.RDMA] = d.RDMA
		case d.Net != "":
			files["/sys/class/net/"+d.Net] = d.Net
		}
	}
	return files
}

// missingDevice asks a VM which of the files are not there, and returns the name of one; "": all are, or it does not say.
func missingDevice(ctx context.Context, vm *guest.Client, files map[string]string) string {
	e := session.Caller([]string{"/bin/sh", "-c", lookDevices, "sh"}, []string{"PATH=/usr/bin:/bin"})
	for f := range files {
		e.Args = append(e.Args, f)
	}
	e.UID, e.GID, e.Groups, e.Dir = 0, 0, nil, "/"
	out := &bounded{left: deviceBytes}
	if _, err := session.Run(ctx, vm, e, session.Streams{Out: out, Err: session.Discard.Err}, nil); err != nil {
		return ""
	}
	for _, line := range strings.Split(string(bytes.TrimSpace(out.b.Bytes())), "\n") {
		if name := files[line]; name != "" {
			return name
		}
	}
	return ""
}
