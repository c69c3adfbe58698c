package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/backend/console"
	"nearmetal/internal/sockpair"
)

// Options are the options of Start.
type Options struct {
	ConsoleLog string // file for the console's output (0600, at most console.LogMax bytes); empty: none
	// Record is called with a process's ID as soon as it runs, and the part of the VM that it is ("": the VM); an
	// error ends the process. Nil: not called.
	Record func(pid int, part string) error
}

// VM is a running QEMU process.
type VM struct {
	name    string
	path    string // of the QEMU program
	bytes   uint64 // size of the memory
	child   *child
	helpers []helper // processes it depends on: the user networks of a VM in a jail, those that serve its files
	qmp     *QMP
	console *console.Console
	started time.Time
	done    chan struct{}

	mu    sync.Mutex
	ended bool   // by Kill or Quit
	why   string // reason of the SHUTDOWN event
	lost  error  // error of a process it depends on
	err   error  // valid when done is closed
}

// Start runs m as a child that is killed when this process dies, and waits until QEMU answers on QMP (the VM runs by
// then). If QEMU fails, the error is its own message in one line. If ctx is done first, the child is killed;
// afterwards ctx has no effect on the VM.
func Start(ctx context.Context, m *Machine, f Files, o Options) (*VM, error) {
	v, err := start(ctx, m, f, o)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", m.Name, err)
	}
	return v, nil
}

func start(ctx context.Context, m *Machine, f Files, o Options) (*VM, error) {
	files, err := m.files(f)
	if err != nil {
		return nil, err
	}
	con, err := console.New(o.ConsoleLog)
	if err != nil {
		return nil, err
	}
	conOurs, conTheirs, err := sockpair.Conn("console")
	if err != nil {
		return nil, err
	}
	go con.Read(conOurs) // ends when no process has conTheirs
	defer conTheirs.Close()
	qmpOurs, qmpTheirs, err := sockpair.Conn("qmp")
	if err != nil {
		return nil, err
	}
	defer qmpTheirs.Close()
	for i, s := range m.slots {
		switch s.kind {
		case slotQMP:
			files[i] = qmpTheirs
		case slotConsole:
			files[i] = conTheirs
		}
	}
	v := &VM{name: m.Name, path: m.path, bytes: m.bytes, console: con, started: time.Now(), done: make(chan struct{})}
	if err := v.startUplinks(m, f, o); err != nil {
		v.endHelpers()
		qmpOurs.Close()
		return nil, err
	}
	ends, err := v.startFiles(m, f, o)
	defer closeFiles(ends)
	if err != nil {
		v.endHelpers()
		qmpOurs.Close()
		return nil, err
	}
	for i, s := range m.slots {
		if s.kind == slotVhost {
			files[i] = ends[s.index]
		}
	}
	jail, err := m.jail(files, f.Cgroup)
	if err != nil {
		v.endHelpers()
		qmpOurs.Close()
		return nil, err
	}
	if v.child, err = spawn(m.Args(), files, jail); err != nil {
		if jail != nil {
			err = strictError(err)
		}
		v.endHelpers()
		qmpOurs.Close()
		return nil, err
	}
	// From here on only QEMU has its ends: they close when it ends.
	qmpTheirs.Close()
	conTheirs.Close()
	closeFiles(ends)
	if o.Record != nil {
		if err := o.Record(v.PID(), ""); err != nil {
			v.child.kill()
			<-v.child.done
			v.endHelpers()
			qmpOurs.Close()
			return nil, err
		}
	}
	if err := v.connect(ctx, qmpOurs); err != nil {
		if failed := v.failedHelper(); failed != nil {
			err = failed
		}
		v.endHelpers()
		return nil, err
	}
	for _, h := range v.helpers {
		go v.watchHelper(h)
	}
	for _, n := range m.later {
		if err := v.qmp.Execute(ctx, "netdev_add", n, nil); err != nil {
			v.Kill()
			return nil, fmt.Errorf("its network: %w", err)
		}
	}
	return v, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// files returns the caller's files in the order of the descriptors; those for QMP and the console stay empty.
func (m *Machine) files(f Files) ([]*os.File, error) {
	files := make([]*os.File, len(m.slots))
	links := 0
	for i, s := range m.slots {
		what := ""
		switch s.kind {
		case slotQMP, slotConsole, slotVhost:
			continue
		case slotChannel:
			files[i], what = f.Channel, "channel"
		case slotKernel:
			files[i], what = f.Kernel, "kernel"
		case slotInitrd:
			files[i], what = f.Initrd, "initramfs"
		case slotRegion:
			files[i], what = f.Region, "region"
		case slotVeil:
			files[i], what = f.Veil, "veil"
		case slotExport:
			what = fmt.Sprintf("veiled export %d", s.index)
			if s.index < len(f.Exports) {
				files[i] = f.Exports[s.index]
			}
		case slotLink:
			what, links = fmt.Sprintf("network link %d", s.index), links+1
			if s.index < len(f.Links) {
				files[i] = f.Links[s.index]
			}
		}
		if files[i] == nil {
			return nil, fmt.Errorf("no file for the %s", what)
		}
	}
	if links += len(m.uplinks); links != len(f.Links) {
		return nil, fmt.Errorf("%d files for %d network links", len(f.Links), links)
	}
	return files, nil
}

// connect waits for QMP, and starts to watch for the end of the process.
func (v *VM) connect(ctx context.Context, conn io.ReadWriteCloser) error {
	q, err := newQMP(ctx, conn)
	if err != nil {
		v.child.finish(err)
		<-v.child.done
		if errors.Is(err, errQMPClosed) {
			return v.refused()
		}
		return fmt.Errorf("QEMU did not come up: %w", err)
	}
	v.qmp = q
	go v.watch()
	return nil
}

// refused returns the reason why QEMU ended before it was up.
func (v *VM) refused() error {
	said := complaint(v.path, v.child.stderr.String())
	switch {
	case said == "":
		return fmt.Errorf("QEMU ended at its start without a word (%s)", v.child.state())
	case strings.Contains(said, "Cannot allocate memory"):
		return fmt.Errorf("not enough memory for its %s: ask for less, or for fewer VMs (QEMU: %s)", size(v.bytes), said)
	}
	return fmt.Errorf("QEMU refused to start: %s", said)
}

// watch follows the process until it ends.
func (v *VM) watch() {
	for e := range v.qmp.Events() {
		if e.Name == "SHUTDOWN" {
			v.mu.Lock()
			v.why = shutdownReason(e.Data)
			v.mu.Unlock()
		}
	}
	<-v.child.done
	v.endHelpers()
	v.mu.Lock()
	v.err = v.verdict()
	v.mu.Unlock()
	close(v.done)
}
