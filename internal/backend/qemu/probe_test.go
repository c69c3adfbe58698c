package qemu

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
)

// capture is the recorded output of a real QEMU: a greeting, then one line per command.
type capture struct {
	greeting json.RawMessage
	answers  map[string]captured
}

type captured struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	Return    json.RawMessage `json:"return"`
	Error     json.RawMessage `json:"error"`
}

func readCapture(t *testing.T, name string) *capture {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata/probe", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{answers: map[string]captured{}}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, maxQMPLine)
	for sc.Scan() {
		if c.greeting == nil {
			c.greeting = json.RawMessage(slices.Clone(sc.Bytes()))
			continue
		}
		var a captured
		if err := json.Unmarshal(sc.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		c.answers[commandKey(a.Execute, a.Arguments)] = a
	}
	if sc.Err() != nil || c.greeting == nil {
		t.Fatalf("%s: %v", name, sc.Err())
	}
	return c
}

// commandKey returns equal keys for equal commands, regardless of the order of their arguments.
func commandKey(command string, args json.RawMessage) string {
	var m map[string]any
	json.Unmarshal(args, &m)
	b, _ := json.Marshal(m)
	return command + " " + string(b)
}

// serve answers on a connection as the captured QEMU did.
func (c *capture) serve(conn net.Conn) {
	defer conn.Close()
	conn.Write(append(slices.Clone(c.greeting), '\n'))
	sc := bufio.NewScanner(conn)
	for sc.Scan() {
		var q struct {
			captured
			ID string `json:"id"`
		}
		json.Unmarshal(sc.Bytes(), &q)
		a, ok := c.answers[commandKey(q.Execute, q.Arguments)]
		reply := map[string]any{"id": q.ID}
		switch {
		case !ok:
			reply["error"] = map[string]string{"class": "CommandNotFound", "desc": "not captured: " + sc.Text()}
		case a.Error != nil:
			reply["error"] = a.Error
		default:
			reply["return"] = a.Return
		}
		b, _ := json.Marshal(reply)
		conn.Write(append(b, '\n'))
	}
}

// ask runs the probe's queries against a captured QEMU.
func (c *capture) ask(t *testing.T) (Caps, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	go c.serve(theirs)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q, err := newQMP(ctx, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	return askCaps(ctx, "/usr/bin/qemu-system-x86_64", q)
}

// capturedCaps returns the Caps of a captured QEMU on a machine with qboot.
func capturedCaps(t *testing.T, name string) Caps {
	t.Helper()
	caps, err := readCapture(t, name).ask(t)
	if err != nil {
		t.Fatal(err)
	}
	caps.Qboot = "/usr/share/qemu/qboot.rom"
	return caps
}

const (
	qemu72 = "qemu-7.2.22.jsonl.gz"
	qemu10 = "qemu-10.0.2.jsonl.gz"
)

func TestProbeCaptured(t *testing.T) {
	for name, version := range map[string]Version{qemu72: {7, 2, 22}, qemu10: {10, 0, 2}} {
		caps, err := readCapture(t, name).ask(t)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if caps.Version != version || !caps.Q35 || !caps.Sandbox || !caps.UserNet() || !caps.Ivshmem() ||
			!slices.Equal(caps.Accels, []string{"kvm", "tcg"}) || !slices.Equal(caps.Devices, probedDevices) ||
			!slices.Equal(caps.MachineProps, probedProps) || caps.SMPCache != (name == qemu10) || !slices.Contains(caps.Netdevs, "stream") {
			t.Errorf("%s: %+v", name, caps)
		}
	}
}

// TestProbeRedHat probes a QEMU as built by Red Hat: without ivshmem, 9p and slirp. Its description of the protocol
// nevertheless lists "user".
func TestProbeRedHat(t *testing.T) {
	c := readCapture(t, qemu10)
	for key, a := range c.answers {
		switch {
		case strings.Contains(key, "ivshmem-plain"):
			a.Return, a.Error = nil, json.RawMessage(`{"class":"DeviceNotFound","desc":"Device 'ivshmem-plain' not found"}`)
		case strings.Contains(key, "virtio-9p-pci"):
			a.Return, a.Error = nil, json.RawMessage(`{"class":"DeviceNotFound","desc":"Device 'virtio-9p-pci' not found"}`)
		case a.Execute == "netdev_add":
			a.Return, a.Error = nil, json.RawMessage(`{"class":"GenericError","desc":"Parameter 'type' expects a netdev backend type"}`)
		}
		c.answers[key] = a
	}
	caps, err := c.ask(t)
	if err != nil || caps.Ivshmem() || caps.UserNet() || !slices.Contains(caps.Netdevs, "stream") {
		t.Errorf("%+v, %v", caps, err)
	}
	// The remaining capabilities: a region as devdax, and files by virtiofs if a virtiofsd is installed.
	caps.VirtiofsdWhy = "no virtiofsd: install it"
	s := caps.seam()
	if !slices.Equal(s.Regions, []string{"devdax"}) || regionDevice(host.KVM, s.Regions) != "devdax" || len(s.Exports) != 0 || s.Veil ||
		!strings.HasSuffix(s.Why[backend.CapHostFiles], "has no virtio-9p-pci, and for virtiofs: no virtiofsd: install it") {
		t.Errorf("%+v", s)
	}
	caps.Virtiofsd = testVirtiofsd
	if s := caps.seam(); !slices.Equal(s.Exports, []backend.ExportKind{backend.ExportVirtiofs}) || !s.Veil {
		t.Errorf("with virtiofsd: %+v", s)
	}
}

func TestProbeTooOld(t *testing.T) {
	c := readCapture(t, qemu72)
	c.greeting = json.RawMessage(`{"QMP":{"version":{"qemu":{"micro":0,"minor":2,"major":6},"package":"Debian 1:6.2"},"capabilities":[]}}`)
	_, err := c.ask(t)
	if err == nil || !strings.Contains(err.Error(), "version 6.2.0 is too old: nearmetal needs QEMU 7.2") {
		t.Errorf("%v", err)
	}
}

// TestProbeReal queries the QEMU of this machine twice: the second result comes from the cache.
func TestProbeReal(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	first := testCaps(t)
	dir := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "nearmetal")
	list, _ := filepath.Glob(filepath.Join(dir, "qemu-*"))
	if len(list) != 1 {
		t.Fatalf("in the cache: %v", list)
	}
	if second := testCaps(t); !reflect.DeepEqual(first, second) {
		t.Errorf("from the cache %+v, was %+v", second, first)
	}
	// A damaged cache entry causes a new query.
	os.WriteFile(list[0], []byte("{}"), 0o600)
	if third := testCaps(t); !reflect.DeepEqual(first, third) {
		t.Errorf("after damage %+v, was %+v", third, first)
	}
}

func TestProbeFailures(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	script := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "none"), "no such file"},
		{script("ends", "#!/bin/sh\nexit 3\n"), "it ended without a word (exit status 3)"},
		{script("complains", "#!/bin/sh\necho \"$(basename $0): a library is missing\" >&2\nexit 1\n"), "does not work: a library is missing"},
		{script("talks", "#!/bin/sh\necho hello there >&3\n"), `did not greet`},
		{script("notqemu", "no program at all"), "exec format error"},
	} {
		_, err := Probe(context.Background(), tt.path)
		if tt.want == "did not greet" && err != nil && strings.Contains(err.Error(), "an invalid QMP message") {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", filepath.Base(tt.path), err, tt.want)
		}
	}
	// A QEMU that never answers is killed when the context is done.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Probe(ctx, script("silent", "#!/bin/sh\nexec sleep 1000\n")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "qemu-system-x86_64")
	t.Setenv("PATH", dir)
	old := redHatPath
	defer func() { redHatPath = old }()
	redHatPath = filepath.Join(dir, "libexec-qemu-kvm")
	if _, err := Find(""); err == nil || !strings.Contains(err.Error(), "install qemu-system-x86") {
		t.Errorf("none: %v", err)
	}
	os.WriteFile(redHatPath, nil, 0o755)
	if p, err := Find(""); err != nil || p != redHatPath {
		t.Errorf("Red Hat: %s, %v", p, err)
	}
	os.WriteFile(exe, nil, 0o755)
	for _, want := range []string{"", "qemu-system-x86_64", exe} {
		if p, err := Find(want); err != nil || p != exe {
			t.Errorf("%q: %s, %v", want, p, err)
		}
	}
	for _, want := range []string{"no-such-qemu", "/no/such/qemu"} {
		if _, err := Find(want); err == nil || !strings.HasPrefix(err.Error(), "QEMU "+want+": ") {
			t.Errorf("%q: %v", want, err)
		}
	}
}
