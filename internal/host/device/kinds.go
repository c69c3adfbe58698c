package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
)

// The kinds of changes that this package records, in addition to attributes' values: the driver of a function, the
// owner of a device file, and an attribute of a VF that is set through its PF. All end with this boot.
const (
	kindDriver = "pci-driver"
	kindOwner  = "device-owner"
	kindVF     = "vf-attribute"
)

func init() {
	journal.Register(kindDriver, validDriver, undoDriver, func(c journal.Change) string {
		was := c.Args["driver"]
		if was == "" {
			was = "none"
		}
		return fmt.Sprintf("driver of %s (was %s)", c.Args["address"], was)
	})
	journal.Register(kindOwner, validOwner, undoOwner, func(c journal.Change) string {
		return fmt.Sprintf("owner of %s (was user %s)", c.Args["path"], c.Args["uid"])
	})
	journal.Register(kindVF, validVF, undoVF, func(c journal.Change) string {
		return fmt.Sprintf("%s of VF %s of %s (was %s)", c.Args["key"], c.Args["index"], c.Args["pf"], c.Args["before"])
	})
}

// here adds the identity of the host and of the boot to a change.
func (h *Host) here(args map[string]string) map[string]string {
	if h.root != "" {
		args["root"] = h.root
	} else {
		args["boot"] = journal.BootID()
	}
	return args
}

// host returns the host of a change; nil if the host was rebooted since, which ended the change.
func host(c journal.Change) *Host {
	if boot := c.Args["boot"]; boot != "" && boot != journal.BootID() {
		return nil
	}
	return &Host{root: c.Args["root"], wait: waitFor, Links: linksOf(c.Args["root"])}
}

func validRoot(c journal.Change) error {
	if r := c.Args["root"]; r != "" && (!filepath.IsAbs(r) || filepath.Clean(r) != r) {
		return fmt.Errorf("%q is not a clean absolute path", r)
	}
	return nil
}

var driverName = lazyregexp.New(`^[A-Za-z0-9_.-]{0,64}$`)

func (h *Host) driverChange(f *Function) journal.Change {
	override := h.attr(h.dev(f.Address, "driver_override"))
	if override == "(null)" {
		override = ""
	}
	return journal.Change{Kind: kindDriver, Args: h.here(map[string]string{
		"address": f.Address, "driver": f.Driver, "override": override})}
}

func validDriver(c journal.Change) error {
	if !address().MatchString(c.Args["address"]) {
		return fmt.Errorf("%.40q is not a PCI address", c.Args["address"])
	}
	for _, k := range []string{"driver", "override"} {
		if !driverName().MatchString(c.Args[k]) || strings.Contains(c.Args[k], "..") {
			return fmt.Errorf("%.70q is not a driver", c.Args[k])
		}
	}
	return validRoot(c)
}

// undoDriver binds a function to its previous driver, or to none.
func undoDriver(c journal.Change) (bool, error) {
	h, at, was := host(c), c.Args["address"], c.Args["driver"]
	if h == nil || !h.there(at) {
		return false, nil
	}
	now := h.target(h.dev(at, "driver"))
	override := h.attr(h.dev(at, "driver_override"))
	if now == was && (override == c.Args["override"] || override == "(null)" && c.Args["override"] == "") {
		return false, nil
	}
	if h.held(&Function{Address: at, Driver: now}) {
		return false, fmt.Errorf("device %s is in use by %s: end that first", at, h.whoHolds(at))
	}
	ctx := context.Background()
	if now != "" && now != was {
		if err := h.unbind(ctx, at, now); err != nil {
			return false, err
		}
	}
	if err := h.write(h.dev(at, "driver_override"), c.Args["override"]); err != nil {
		return false, err
	}
	if was == "" || now == was {
		return true, nil
	}
	return true, h.bindTo(ctx, at, was)
}

// whoHolds returns who has a function open.
func (h *Host) whoHolds(at string) string {
	f := h.read(at)
	return h.holder(f, h.openGroups([]*Function{f}))
}

// ownerChange returns the change of a device file's owner and mode.
func (h *Host) ownerChange(path string) (journal.Change, error) {
	st, err := os.Lstat(h.path(path))
	if err != nil {
		return journal.Change{}, err
	}
	s := st.Sys().(*syscall.Stat_t)
	return journal.Change{Kind: kindOwner, Args: h.here(map[string]string{
		"path": path, "uid": strconv.Itoa(int(s.Uid)), "gid": strconv.Itoa(int(s.Gid)),
		"mode": strconv.FormatUint(uint64(st.Mode().Perm()), 8)})}, nil
}

var groupPath = lazyregexp.New(`^/dev/vfio/[0-9]{1,9}$`)

func validOwner(c journal.Change) error {
	if !groupPath().MatchString(c.Args["path"]) {
		return fmt.Errorf("%.40q is not the file of an IOMMU group", c.Args["path"])
	}
	if _, _, _, err := ownerOf(c); err != nil {
		return err
	}
	return validRoot(c)
}

func ownerOf(c journal.Change) (uid, gid int, mode fs.FileMode, err error) {
	u, err1 := strconv.ParseUint(c.Args["uid"], 10, 31)
	g, err2 := strconv.ParseUint(c.Args["gid"], 10, 31)
	m, err3 := strconv.ParseUint(c.Args["mode"], 8, 9)
	return int(u), int(g), fs.FileMode(m), errors.Join(err1, err2, err3)
}

func undoOwner(c journal.Change) (bool, error) {
	h := host(c)
	if h == nil {
		return false, nil
	}
	uid, gid, mode, err := ownerOf(c)
	if err != nil {
		return false, err
	}
	err = h.give(c.Args["path"], uid, gid, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the group was removed with its driver
	}
	return err == nil, err
}

// give sets the owner and mode of a device file, but not of a link's target.
func (h *Host) give(path string, uid, gid int, mode fs.FileMode) error {
	p := h.path(path)
	st, err := os.Lstat(p)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a link: not touched", p)
	}
	if err := os.Lchown(p, uid, gid); err != nil {
		return err
	}
	return os.Chmod(p, mode)
}

func (h *Host) vfChange(pf string, index int, key, before string) journal.Change {
	return journal.Change{Kind: kindVF, Args: h.here(map[string]string{
		"pf": pf, "index": strconv.Itoa(index), "key": key, "before": before})}
}

func validVF(c journal.Change) error {
	if !address().MatchString(c.Args["pf"]) {
		return fmt.Errorf("%.40q is not a PCI address", c.Args["pf"])
	}
	if n, err := strconv.ParseUint(c.Args["index"], 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("%.40q is not the number of a VF", c.Args["index"])
	}
	a := attributes[c.Args["key"]]
	if a == nil {
		return fmt.Errorf("%.40q is not an attribute of a VF", c.Args["key"])
	}
	if b := c.Args["before"]; b != "" && !unset(c.Args["key"], b) {
		if _, err := a.check(b); err != nil {
			return err
		}
	}
	return validRoot(c)
}

// undoVF restores an attribute. If the VF is gone, so are its attributes.
func undoVF(c journal.Change) (bool, error) {
	h := host(c)
	n, _ := strconv.Atoi(c.Args["index"])
	if h == nil || c.Args["before"] == "" || h.target(h.dev(c.Args["pf"], "virtfn"+c.Args["index"])) == "" {
		return false, nil
	}
	if now, err := h.getVF(c.Args["pf"], n, c.Args["key"]); err == nil && now == c.Args["before"] {
		return false, nil
	}
	err := h.setVF(c.Args["pf"], n, c.Args["key"], c.Args["before"])
	if errors.Is(err, syscall.EINVAL) && unset(c.Args["key"], c.Args["before"]) {
		return false, nil // the card cannot remove it; it is removed with the VF
	}
	return err == nil, err
}
