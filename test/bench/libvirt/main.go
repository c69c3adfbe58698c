// Command libvirt measures what `make bench-libvirt` prints: how long one VM takes from its start until its agent is
// ready, by nearmetal's own driver, by its libvirt driver, and as a bare domain by `virsh create`, with the same kernel,
// root, console and network card. All in turns, on a libvirtd of the host's in a namespace of its own. It needs root and build/nearmetal.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/stats"
)

func main() {
	n := flag.Int("n", 5, "`runs` of each kind")
	flag.Parse()
	if err := run(*n); err != nil {
		fmt.Fprintln(os.Stderr, "bench-libvirt:", err)
		os.Exit(1)
	}
}

func run(n int) error {
	program, err := filepath.Abs("build/nearmetal")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil || os.Geteuid() != 0 || n < 1 {
		return errors.Join(errors.New("run make first, and this as root from the top of the source tree"), err)
	}
	dir, err := os.MkdirTemp("/tmp", "nm-lvbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	os.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(dir, "run"))
	uri := "qemu:///system?socket=" + dir + "/libvirt-sock"
	stop, err := daemon(dir)
	if err != nil {
		return err
	}
	defer stop()
	b, err := newBare(dir, uri)
	if err != nil {
		return err
	}
	kinds := []struct {
		name string
		f    func() (time.Duration, error)
	}{
		{"nearmetal, own driver", func() (time.Duration, error) { return up(program, "qemu") }},
		{"nearmetal, libvirt", func() (time.Duration, error) { return up(program, uri) }},
		{"bare domain, virsh create", b.start},
	}
	times := make([][]float64, len(kinds))
	for i := -1; i < n; i++ { // the first of each fills caches
		for k, kind := range kinds {
			t, err := kind.f()
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			if i >= 0 {
				times[k] = append(times[k], t.Seconds())
			}
		}
	}
	bare := stats.Median(times[2])
	for k, kind := range kinds {
		m := stats.Median(times[k])
		fmt.Printf("%-28s %6.2f s  %.2f of the bare domain\n", kind.name, m, m/bare)
	}
	fmt.Printf("medians of %d, in turns: from the start of one VM until its agent is ready (512 MiB, one vCPU)\n", n)
	return nil
}

// daemon starts a libvirtd in a namespace of its own, and returns what ends it.
func daemon(dir string) (func(), error) {
	holder := exec.Command("unshare", "-m", "sh", "test/libvirt/libvirtd.sh", dir)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	holder.Stderr = os.Stderr
	in, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("libvirtd.sh: %q, %w", line, err)
	}
	d := exec.Command("nsenter", "-m", "-t", fmt.Sprint(holder.Process.Pid), "libvirtd", "-f", dir+"/libvirtd.conf", "-p", dir+"/pid")
	d.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // no event says so
		c, err := net.Dial("unix", dir+"/libvirt-sock")
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			return nil, err
		}
	}
	return func() {
		d.Process.Kill()
		d.Wait()
		in.Close()
		holder.Wait()
	}, nil
}

// up starts a cluster of one VM, and returns how long the VM took, by its record.
func up(program, on string) (time.Duration, error) {
	out, err := exec.Command(program, "up", "--name", "b", "--on", on, "--memory", "512MiB", "--vms", "1", "--vcpus", "1", "--no-share", "--no-verify").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	defer exec.Command(program, "down", "b").Run()
	text, err := exec.Command(program, "ps", "b", "--json").Output()
	if err != nil {
		return 0, err
	}
	var r struct{ VMs []struct{ ReadyNs int64 } }
	if err := json.Unmarshal(text, &r); err != nil || len(r.VMs) != 1 || r.VMs[0].ReadyNs == 0 {
		return 0, fmt.Errorf("%w: %s", err, text)
	}
	return time.Duration(r.VMs[0].ReadyNs), nil
}

// bare is the shortest domain with a root, an agent, and what each VM of nearmetal's has: a console's file and a network card.
type bare struct {
	dir, uri string
	image    *image.Image
}

func newBare(dir, uri string) (*bare, error) {
	k, err := image.FindKernel("")
	if err != nil {
		return nil, err
	}
	i, err := image.Open(image.Request{Kernel: k})
	return &bare{dir, uri, i}, err
}

const bareMAC = "52:54:00:00:00:01"

const bareXML = `<domain type='qemu'><name>bare</name><memory unit='MiB'>512</memory><vcpu current='1'>2</vcpu>
<os><type machine='q35'>hvm</type>%s<kernel>/proc/%d/fd/%d</kernel><initrd>/proc/%d/fd/%d</initrd><cmdline>%s</cmdline></os>
<features><acpi/><apic/></features><cpu mode='maximum'><feature policy='disable' name='erms'/><feature policy='disable' name='fsrm'/></cpu>
<on_reboot>destroy</on_reboot><devices><controller type='usb' model='none'/><memballoon model='none'/>
<serial type='file'><source path='%s'/></serial>
<interface type='user'><mac address='%s'/><model type='virtio'/><rom enabled='no'/></interface>
<filesystem type='mount' accessmode='passthrough' multidevs='remap'><source dir='/'/><target dir='root'/><readonly/></filesystem>
<channel type='unix'><source mode='connect' path='%s'/><target type='virtio' name='%s'/></channel></devices>
<seclabel type='static' model='dac' relabel='no'><label>+0:+0</label></seclabel></domain>`

// start has virsh create the domain, and returns how long it took until the agent was ready.
func (b *bare) start() (time.Duration, error) {
	c := guest.Config{Name: "bare", Root: guest.Mount{Tag: "root"}, Links: []guest.Link{
		{Name: "eth1", MAC: bareMAC, Address: backend.UserGuest, Gateway: backend.UserHost}}}
	text, err := c.Encode()
	if err != nil {
		return 0, err
	}
	initrd, err := b.image.WithConfig(text)
	if err != nil {
		return 0, err
	}
	defer initrd.Close()
	sock := filepath.Join(b.dir, "agent")
	l, err := net.Listen("unix", sock)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	khz, _ := host.TSCKHz()
	loader := ""
	if _, err := os.Stat("/usr/share/qemu/qboot.rom"); err == nil && b.image.PVH() {
		loader = "<loader type='rom'>/usr/share/qemu/qboot.rom</loader>"
	}
	xml := fmt.Sprintf(bareXML, loader, os.Getpid(), b.image.KernelFile().Fd(), os.Getpid(), initrd.Fd(), lower.KernelArgs{Accel: host.TCG, TSCKHz: khz},
		filepath.Join(b.dir, "console"), bareMAC, sock, backend.AgentPort)
	path := filepath.Join(b.dir, "bare.xml")
	if err := os.WriteFile(path, []byte(xml), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	virsh := exec.Command("virsh", "-q", "-c", b.uri, "create", path)
	var said []byte
	done := make(chan error, 1)
	go func() {
		var err error
		if said, err = virsh.CombinedOutput(); err != nil {
			l.Close()
		}
		done <- err
	}()
	defer func() { exec.Command("virsh", "-q", "-c", b.uri, "destroy", "bare").Run() }()
	conn, err := l.Accept()
	if err != nil {
		<-done
		return 0, fmt.Errorf("virsh create: %s", said)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := guest.NewAgent(ctx, conn, guest.AgentOptions{Name: "bare"})
	if err != nil {
		return 0, err
	}
	t := time.Since(began)
	a.Close()
	return t, <-done
}
