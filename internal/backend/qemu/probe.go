package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/host/cache"
)

const (
	probeTimeout = 60 * time.Second // 0.1 s on an idle machine
	probeFormat  = "4"              // version of the cached data
	keepProbes   = 4                // in the cache
)

// Probe queries the capabilities of the QEMU program at path. The result is cached by the file's path, size and time
// of change. It fails for a QEMU older than 7.2, the oldest supported one.
func Probe(ctx context.Context, path string) (Caps, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Caps{}, fmt.Errorf("QEMU %w", err)
	}
	key := probeKey(path, st)
	dir, _ := cache.Open() // without a cache QEMU is queried each time
	if caps, ok := cachedCaps(dir, key); ok {
		return caps, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	caps, err := probe(ctx, path)
	if err != nil {
		return Caps{}, err
	}
	if dir != nil {
		if b, err := json.Marshal(caps); err == nil {
			if f, err := dir.Put(key, b); err == nil {
				f.Close()
				dir.Trim(map[string]int{"qemu": keepProbes})
			}
		}
	}
	return caps, nil
}

func probeKey(path string, st os.FileInfo) string {
	h := sha256.New()
	fmt.Fprintln(h, probeFormat, path, st.Size(), st.ModTime().UnixNano(), probedDevices, probedProps)
	return "qemu-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// cachedCaps returns a cached result, unless the firmware that it names no longer exists.
func cachedCaps(dir *cache.Dir, key string) (Caps, bool) {
	if dir == nil {
		return Caps{}, false
	}
	f, n, err := dir.Open(key)
	if err != nil {
		return Caps{}, false
	}
	defer f.Close()
	var caps Caps
	if json.NewDecoder(io.NewSectionReader(f, 0, n)).Decode(&caps) != nil {
		return Caps{}, false
	}
	if caps.Qboot != "" {
		if _, err := os.Stat(caps.Qboot); err != nil {
			return Caps{}, false
		}
	}
	return caps, true
}

// probe runs QEMU without a machine and queries it.
func probe(ctx context.Context, path string) (Caps, error) {
	args := []string{path, "-machine", "none", "-display", "none", "-nodefaults", "-no-user-config",
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control"}
	c, ours, err := spawnWithSocket(args)
	if err != nil {
		return Caps{}, err
	}
	defer func() {
		c.kill()
		<-c.done
	}()
	q, err := newQMP(ctx, ours)
	if err != nil {
		return Caps{}, probeError(path, c, err)
	}
	caps, err := askCaps(ctx, path, q)
	if err != nil {
		return Caps{}, probeError(path, c, err)
	}
	caps.Qboot = findQboot(ctx, path)
	return caps, nil
}

// probeError returns the reason why a QEMU could not be queried, in its own words if it ended.
func probeError(path string, c *child, err error) error {
	if !errors.Is(err, errQMPClosed) {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.finish(err)
	<-c.done
	if said := complaint(path, c.stderr.String()); said != "" {
		return fmt.Errorf("%s does not work: %s", path, said)
	}
	if sig := c.signalled(); sig != 0 {
		return fmt.Errorf("%s %w (signal %d)", path, backend.ErrKilled, int(sig))
	}
	return fmt.Errorf("%s does not work: it ended without a word (%s)", path, c.state())
}

// askCaps queries a QEMU without a machine.
func askCaps(ctx context.Context, path string, q *QMP) (Caps, error) {
	caps := Caps{Path: path, Version: q.version, Package: strings.TrimSpace(q.pkg)}
	if caps.Version.less(minVersion) {
		return Caps{}, fmt.Errorf("version %s is too old: nearmetal needs QEMU %d.%d or newer (Debian 12 and Ubuntu 24.04 have it)", caps.Version, minVersion.Major, minVersion.Minor)
	}
	if err := caps.askAccels(ctx, q); err != nil {
		return Caps{}, err
	}
	for _, d := range probedDevices {
		// The devices are queried one by one, because a list of all types makes QEMU load all of its modules.
		err := q.Execute(ctx, "device-list-properties", map[string]string{"typename": d}, nil)
		var refused *QMPError
		if err == nil {
			caps.Devices = append(caps.Devices, d)
		} else if !errors.As(err, &refused) {
			return Caps{}, err
		}
	}
	if err := caps.askNetdevs(ctx, q); err != nil {
		return Caps{}, err
	}
	if err := caps.askMachine(ctx, q); err != nil {
		return Caps{}, err
	}
	err := q.Execute(ctx, "query-command-line-options", map[string]string{"option": "sandbox"}, nil)
	var refused *QMPError
	if err != nil && !errors.As(err, &refused) {
		return Caps{}, err
	}
	caps.Sandbox = err == nil
	return caps, nil
}

func (c *Caps) askAccels(ctx context.Context, q *QMP) error {
	var types []struct {
		Name string `json:"name"`
	}
	if err := q.Execute(ctx, "qom-list-types", map[string]any{"implements": "accel", "abstract": false}, &types); err != nil {
		return err
	}
	for _, t := range types {
		if name, ok := strings.CutSuffix(t.Name, "-accel"); ok && (name == "kvm" || name == "tcg") {
			c.Accels = append(c.Accels, name)
		}
	}
	slices.Sort(c.Accels)
	return nil
}

// askNetdevs finds the network backends: the variants of the argument of netdev_add, in QEMU's description of its own
// protocol.
func (c *Caps) askNetdevs(ctx context.Context, q *QMP) error {
	var schema []struct {
		Name     string `json:"name"`
		Meta     string `json:"meta-type"`
		ArgType  string `json:"arg-type"`
		Variants []struct {
			Case string `json:"case"`
		} `json:"variants"`
	}
	if err := q.Execute(ctx, "query-qmp-schema", nil, &schema); err != nil {
		return err
	}
	arg := ""
	for _, e := range schema {
		if e.Meta == "command" && e.Name == "netdev_add" {
			arg = e.ArgType
		}
	}
	for _, e := range schema {
		if e.Meta == "object" && e.Name == arg {
			for _, v := range e.Variants {
				c.Netdevs = append(c.Netdevs, v.Case)
			}
		}
	}
	// A build without slirp also lists "user", but fails to create one.
	user := string(backend.LinkUser)
	err := q.Execute(ctx, "netdev_add", map[string]string{"type": user, "id": "probe"}, nil)
	var refused *QMPError
	switch {
	case errors.As(err, &refused):
		c.Netdevs = slices.DeleteFunc(c.Netdevs, func(s string) bool { return s == user })
	case err != nil:
		return err
	}
	slices.Sort(c.Netdevs)
	return nil
}

// askMachine finds the full name of q35, which of probedProps it has, and smp-cache.
func (c *Caps) askMachine(ctx context.Context, q *QMP) error {
	var machines []struct {
		Name  string `json:"name"`
		Alias string `json:"alias"`
	}
	if err := q.Execute(ctx, "query-machines", nil, &machines); err != nil {
		return err
	}
	for _, m := range machines {
		if m.Name != "q35" && m.Alias != "q35" {
			continue
		}
		c.Q35 = true
		var props []struct {
			Name string `json:"name"`
		}
		if err := q.Execute(ctx, "qom-list-properties", map[string]string{"typename": m.Name + "-machine"}, &props); err != nil {
			return err
		}
		for _, p := range props {
			if slices.Contains(probedProps, p.Name) {
				c.MachineProps = append(c.MachineProps, p.Name)
			}
			c.SMPCache = c.SMPCache || p.Name == smpCache
		}
	}
	slices.Sort(c.MachineProps)
	return nil
}

// findQboot searches the small firmware in the directories of QEMU's own firmware.
func findQboot(ctx context.Context, path string) string {
	cmd := exec.CommandContext(ctx, path, "-L", "help")
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	for _, dir := range strings.Split(string(out), "\n") {
		if !filepath.IsAbs(dir) {
			continue
		}
		p := filepath.Join(dir, "qboot.rom")
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p
		}
	}
	return ""
}
