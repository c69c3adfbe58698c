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

// Bounds of the query for a VM's devices.
const (
	deviceTime  = time.Minute
	deviceBytes = 4096
)

// lookDevices prints those of its arguments that do not exist.
const lookDevices = `for f in "$@"; do [ -e "$f" ] || echo "$f"; done`

// launchable returns the reason why the launcher that e starts cannot run in the VMs, or nil.
func launchable(ctx context.Context, c *client.Client, e guest.Exec) error {
	if err := sameMPI(ctx, c, e); err != nil {
		return err
	}
	return haveDevices(ctx, c, e)
}

// haveDevices returns an error if a device of the VMs has disappeared since they booted. It is called before the
// ranks of the launcher that e starts use it: they would wait for each other, or fail with a library's less precise
// error.
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

// deviceFiles maps the files that show that devices exist, RDMA or network, to the devices' names.
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

// missingDevice returns the name of a device whose file is missing in a VM; "": none is, or the VM does not answer.
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
