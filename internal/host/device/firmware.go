package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/text"
)

// kindFirmware is a setting in a card's firmware. It persists across boots.
const kindFirmware = "card-firmware"

// FirmwareChange is a setting of a card's firmware by mstconfig's name, such as NUM_OF_VFS, with the current and the
// new value for the next boot, as numbers.
type FirmwareChange struct{ Name, Before, After string }

// FirmwareWant is the wanted state of a card's firmware.
type FirmwareWant struct {
	LinkType string // "ib", "eth", or "" to keep it
	VFs      int    // number of VFs that it offers, 0 for no SR-IOV, -1 to keep it
}

// mostFirmwareVFs bounds NUM_OF_VFS; the card's own limit is lower, and mstconfig reports it.
const mostFirmwareVFs = 1023

// Check returns an error for invalid values.
func (w FirmwareWant) Check() error {
	if w.LinkType != "" {
		if _, err := checkWord("ib", "eth")(w.LinkType); err != nil {
			return err
		}
	}
	if w.VFs < -1 || w.VFs > mostFirmwareVFs {
		return fmt.Errorf("%d is not a number of VFs from 0 to %d", w.VFs, mostFirmwareVFs)
	}
	return nil
}

// settings returns mstconfig's names and numbers. Function N of a card is its port N+1.
func (w FirmwareWant) settings(at string) map[string]string {
	set := map[string]string{}
	if w.LinkType != "" {
		port := int(at[len(at)-1]-'0') + 1
		set[fmt.Sprintf("LINK_TYPE_P%d", port)] = map[string]string{"ib": "1", "eth": "2"}[w.LinkType]
	}
	if w.VFs == 0 {
		set["SRIOV_EN"] = "0"
	}
	if w.VFs > 0 {
		set["SRIOV_EN"], set["NUM_OF_VFS"] = "1", strconv.Itoa(w.VFs)
	}
	return set
}

// PlanFirmware queries a card's firmware (mstconfig), and returns the changes for SetFirmware; none if the firmware
// is as wanted.
func (h *Host) PlanFirmware(ctx context.Context, at string, want FirmwareWant) ([]FirmwareChange, error) {
	if err := want.Check(); err != nil {
		return nil, err
	}
	f := h.read(at)
	if f.Kind == VF {
		return nil, fmt.Errorf("device %s is a VF: its card %s has the firmware", at, f.PF)
	}
	if f.Vendor != Mellanox {
		return nil, fmt.Errorf("device %s is not of Mellanox (NVIDIA): mstconfig sets no other firmware", at)
	}
	now, err := h.queryFirmware(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", at, err)
	}
	var list []FirmwareChange
	for name, after := range want.settings(at) {
		before, ok := numeric(now[name])
		if !ok {
			return nil, fmt.Errorf("device %s: its firmware has no setting %s", at, name)
		}
		if before != after {
			list = append(list, FirmwareChange{name, before, after})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// SetFirmware makes changes that PlanFirmware returned, for the next cold boot. Release reverts them.
func (h *Host) SetFirmware(ctx context.Context, at string, list []FirmwareChange) (err error) {
	if _, err := change.Recover(h.State()); err != nil || len(list) == 0 {
		return err
	}
	t, err := h.begin("set:" + at)
	if err != nil {
		return err
	}
	defer func() { err = h.finish(t, err) }()
	device, _ := h.number(h.dev(at, "device"))
	var set []string
	for _, c := range list {
		args := map[string]string{"address": at, "device": strconv.Itoa(device), "name": c.Name, "before": c.Before}
		if h.root != "" {
			args["root"] = h.root
		}
		if err := t.Record(journal.Change{Kind: kindFirmware, Args: args}); err != nil {
			return err
		}
		set = append(set, c.Name+"="+c.After)
	}
	if err := h.writeFirmware(ctx, at, set...); err != nil {
		return fmt.Errorf("device %s: %w", at, err)
	}
	return nil
}

func init() {
	journal.Register(kindFirmware, validFirmware, undoFirmware, func(c journal.Change) string {
		return fmt.Sprintf("%s in the firmware of %s (was %s; it counts after a cold boot)", c.Args["name"], c.Args["address"], c.Args["before"])
	})
}

func validFirmware(c journal.Change) error {
	if !address().MatchString(c.Args["address"]) {
		return fmt.Errorf("%.40q is not a PCI address", c.Args["address"])
	}
	if !firmwareNames[c.Args["name"]] {
		return fmt.Errorf("%.40q is not a setting of a card's firmware", c.Args["name"])
	}
	if _, err := checkInt(0, 1<<20)(c.Args["before"]); err != nil {
		return err
	}
	return validRoot(c)
}

// undoFirmware reverts a setting, if the card is present, and is the same kind of card.
func undoFirmware(c journal.Change) (bool, error) {
	h, at := &Host{root: c.Args["root"], wait: waitFor}, c.Args["address"]
	if device, ok := h.number(h.dev(at, "device")); !ok || strconv.Itoa(device) != c.Args["device"] {
		return false, nil
	}
	now, err := h.queryFirmware(context.Background(), at)
	if err != nil {
		return false, fmt.Errorf("device %s: %w", at, err)
	}
	if v, ok := numeric(now[c.Args["name"]]); !ok || v == c.Args["before"] {
		return false, nil
	}
	return true, h.writeFirmware(context.Background(), at, c.Args["name"]+"="+c.Args["before"])
}

// firmwareNames are the settings that are relevant for VMs (NVIDIA's user manual of mlxconfig).
var firmwareNames = map[string]bool{
	"SRIOV_EN": true, "NUM_OF_VFS": true, "LINK_TYPE_P1": true, "LINK_TYPE_P2": true, "ADVANCED_PCI_SETTINGS": true,
	"PCI_WR_ORDERING": true, "NUM_PF_MSIX": true, "NUM_VF_MSIX": true, "UCTX_EN": true,
}

// firmwareSettings parses the output of mstconfig query: under a heading, lines with a name and a value, such as
// "LINK_TYPE_P1 IB(1)"; with several columns the last is the next boot's.
func firmwareSettings(said string) map[string]string {
	found := map[string]string{}
	for _, line := range strings.Split(said, "\n") {
		w := strings.Fields(line)
		if len(w) > 0 && w[0] == "*" { // a setting that differs from the default
			w = w[1:]
		}
		if len(w) >= 2 && len(w) <= 4 && firmwareNames[w[0]] && len(w[len(w)-1]) < 64 {
			found[w[0]] = text.ASCII(w[len(w)-1])
		}
	}
	return found
}

var numbered = lazyregexp.New(`^(?:[A-Za-z_]+\(([0-9]{1,6})\)|([0-9]{1,6}))$`)

// numeric returns the number of a value such as "IB(1)", "True(1)" or "8".
func numeric(v string) (string, bool) {
	m := numbered().FindStringSubmatch(v)
	if m == nil {
		return "", false
	}
	n, _ := strconv.Atoi(m[1] + m[2])
	return strconv.Itoa(n), true
}

// Time limits of mstconfig, and the maximum bytes of its output: some 300 lines.
const (
	queryFor  = 30 * time.Second
	setFor    = 2 * time.Minute
	answerMax = 256 << 10
)

// runsPrograms reports whether this system's programs may be run for the host below a root.
var runsPrograms = func(root string) bool { return root == "" }

func (h *Host) queryFirmware(ctx context.Context, at string) (map[string]string, error) {
	ctx, stop := context.WithTimeout(ctx, queryFor)
	defer stop()
	out, err := h.mstconfig(ctx, "-d", at, "query")
	if err != nil {
		return nil, err
	}
	return firmwareSettings(out), nil
}

// writeFirmware has mstconfig set NAME=NUMBER. Ctrl-C does not interrupt it.
func (h *Host) writeFirmware(ctx context.Context, at string, set ...string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), setFor)
	defer stop()
	_, err := h.mstconfig(ctx, append([]string{"-y", "-d", at, "set"}, set...)...)
	return err
}

// mstconfig runs the program and returns its output.
func (h *Host) mstconfig(ctx context.Context, args ...string) (string, error) {
	if !runsPrograms(h.root) {
		return "", errors.New("a captured tree has no firmware to ask")
	}
	prog, err := exec.LookPath("mstconfig")
	if err != nil {
		return "", errors.New("the card's firmware is set with mstconfig, which is not installed: it is in the package mstflint")
	}
	cmd := exec.CommandContext(ctx, prog, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// It has a process group of its own, because the terminal's Ctrl-C is for nearmetal, and its children end with
	// it. A kill -9 of nearmetal also ends it, so that it writes nothing after recovery has read the settings.
	runtime.LockOSThread() // the signal is sent at the end of the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out := &bounded{most: answerMax}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("mstconfig %s did not answer in time", args[len(args)-1])
	case out.cut:
		return "", fmt.Errorf("mstconfig printed more than %d bytes: not an answer", answerMax)
	case err != nil:
		return "", fmt.Errorf("mstconfig: %s", complaint(out.String(), err))
	}
	return out.String(), nil
}

// complaint returns the line of mstconfig's output that reports an error ("-E- …"), or how it failed.
func complaint(said string, err error) string {
	for _, line := range strings.Split(said, "\n") {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "-E-"); ok && len(s) < 400 {
			return text.ASCII(strings.TrimSpace(s))
		}
	}
	return err.Error()
}

// bounded keeps a limited number of written bytes, and then fails.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.cut = true
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}

// ReadFrom makes io.Copy use Write.
func (b *bounded) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}
