package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/guest"
	"nearmetal/internal/host/check"
	"nearmetal/internal/session"
)

// reportMax bounds a VM's report, in bytes.
const reportMax = 4 << 20

// Check checks a VM of a running cluster from the inside: it copies this program into the VM's memory, runs it there
// as root with the profile guest, and removes it. The VM supplies the report, which is bounded and read as data.
func Check(ctx context.Context, name, vm string) (*check.Report, error) {
	c, err := client.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Running(); err != nil {
		return nil, err
	}
	if vm, err = c.Record.FindVM(vm); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	const to = "/run/nearmetal-check"
	e := session.Caller(nil, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
	e.UID, e.GID, e.Groups, e.Dir = 0, 0, nil, "/"
	if err := c.Push(ctx, guest.Copy{VM: vm, Local: self, Remote: to}); err != nil {
		return nil, fmt.Errorf("%s: %w", vm, err)
	}
	e.Args = []string{"/bin/sh", "-c", `"$1" check --for guest --json; s=$?; rm -f "$1"; exit $s`, "sh", to}
	var out, errs limited
	out.max, errs.max = reportMax, 4096
	st, err := session.Run(ctx, c.VM(vm), e, session.Streams{Out: &out, Err: &errs}, nil)
	if err != nil {
		return nil, &lines{err}
	}
	var r check.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Sane() != nil {
		why := strings.TrimSpace(errs.String())
		if why == "" {
			why = st.String()
		}
		return nil, fmt.Errorf("%s: the check in the VM returned no report: %s", vm, why)
	}
	r.Host = vm
	return &r, nil
}

// limited keeps the first max bytes and fails on more.
type limited struct {
	bytes.Buffer
	max int
}

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > l.max {
		return 0, errors.New("the VM's answer is too long")
	}
	return l.Buffer.Write(b)
}
