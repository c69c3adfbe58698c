package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
)

// bench is what both sides are made from.
type bench struct {
	caps  qemu.Caps
	image *image.Image
	tsc   int // kHz
	mib   int // of a VM's memory
	dir   string
}

func newBench(caps qemu.Caps, memoryMiB int) (*bench, error) {
	b := &bench{caps: caps, mib: memoryMiB, dir: os.Getenv("NEARMETAL_RUNTIME_DIR")}
	k, err := image.FindKernel("")
	if err != nil {
		return nil, err
	}
	if b.image, err = image.Open(image.Request{Kernel: k}); err != nil {
		return nil, err
	}
	if !b.image.PVH() {
		b.image.Close()
		return nil, fmt.Errorf("kernel %s has no PVH entry: there is no bare QEMU line to compare with", k.Path)
	}
	b.tsc, _ = host.TSCKHz()
	return b, nil
}

// bare starts two QEMUs by the shortest fast line, with just a mirrored root and a
// channel, and returns how long it takes until both agents say that they are ready, and the
// CPU time of both QEMUs until then.
func (b *bench) bare(ctx context.Context) (wall, cpu time.Duration, err error) {
	var files [2][]*os.File // kernel, initrd, channel
	var conns [2]net.Conn
	defer func() {
		for i := range files {
			for j, f := range files[i] {
				if j > 0 {
					f.Close()
				}
			}
		}
	}()
	for i := range files {
		c := guest.Config{Name: fmt.Sprint("vm", i), Index: i, Root: guest.Mount{Tag: "root"}}
		text, err := c.Encode()
		if err != nil {
			return 0, 0, err
		}
		initrd, err := b.image.WithConfig(text)
		if err != nil {
			return 0, 0, err
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, 0, err
		}
		near := os.NewFile(uintptr(fds[0]), "channel")
		if conns[i], err = net.FileConn(near); err != nil {
			return 0, 0, err
		}
		near.Close()
		files[i] = []*os.File{b.image.KernelFile(), initrd, os.NewFile(uintptr(fds[1]), "channel of QEMU")}
	}
	errs := make(chan error, 2)
	cmds := make([]*exec.Cmd, 0, 2)
	defer func() {
		for _, c := range cmds {
			c.Process.Kill()
			c.Wait()
		}
	}()
	start := time.Now()
	for i := range files {
		serial := filepath.Join(b.dir, fmt.Sprint("serial", i))
		args := qemu.BareArgs(b.caps, "/proc/self/fd/3", "/proc/self/fd/4", serial, b.mib, b.tsc)
		args = append(args,
			"-fsdev", "local,id=r,path=/,security_model=passthrough,readonly=on,multidevs=remap",
			"-device", "virtio-9p-pci,fsdev=r,mount_tag=root", "-device", "virtio-serial-pci",
			"-chardev", "socket,id=c,fd=5", "-device", "virtserialport,chardev=c,name="+backend.AgentPort)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.ExtraFiles, cmd.Stderr = files[i], os.Stderr
		// Not PDEATHSIG, which is about a thread that Go may end: the defer above sees to it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			return 0, 0, err
		}
		cmds = append(cmds, cmd)
		files[i][2].Close()
		go func() {
			a, err := guest.NewAgent(ctx, conns[i], guest.AgentOptions{Name: fmt.Sprint("vm", i)})
			if err == nil {
				defer a.Close()
			}
			errs <- err
			<-ctx.Done() // an agent whose channel closes would power its VM off
		}()
	}
	for range files {
		if err := <-errs; err != nil {
			return 0, 0, fmt.Errorf("bare QEMU: %w", err)
		}
	}
	wall = time.Since(start)
	for _, c := range cmds {
		cpu += cpuTime(c.Process.Pid)
	}
	return wall, cpu, nil
}
