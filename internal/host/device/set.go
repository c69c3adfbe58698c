package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/host/change"
)

// attribute is an attribute of a VF that is set through its PF.
type attribute struct {
	link string // "ethernet", "infiniband", or "" for both
	help string
	// check returns the value in its written form, or an error.
	check func(string) (string, error)
	// sysfs is the attribute's name below the PF's sriov/N/ (the mlx5 driver of MLNX_OFED).
	sysfs string
}

var attributes = map[string]*attribute{
	"mac":        {"ethernet", "MAC `ADDRESS`, unicast", checkMAC, "mac"},
	"vlan":       {"ethernet", "`VLAN` that the VF's frames are in, 0 for none", checkInt(0, 4094), "vlan"},
	"trust":      {"ethernet", "whether the VF may change its MAC and be promiscuous, `on|off`", checkOnOff, "trust"},
	"spoofcheck": {"ethernet", "whether frames with another sender than the VF's are dropped, `on|off`", checkOnOff, "spoofcheck"},
	"rate":       {"ethernet", "most that the VF may send, `MBITS` a second, 0 for no limit", checkInt(0, 1_000_000), "max_tx_rate"},
	"link-state": {"", "link of the VF: as the card's, or always up or down, `auto|up|down`", checkWord("auto", "up", "down"), "link_state"},
	"node-guid":  {"infiniband", "node `GUID`", checkGUID, "node"},
	"port-guid":  {"infiniband", "port `GUID`", checkGUID, "port"},
	"policy":     {"infiniband", "link of the VF: as the card's, or always up or down, `follow|up|down`", checkWord("follow", "up", "down"), "policy"},
}

// Attributes returns the names of the attributes that Set accepts, with their descriptions.
func Attributes() (names []string, help map[string]string) {
	help = map[string]string{}
	for n, a := range attributes {
		names, help[n] = append(names, n), a.help
		if a.link != "" {
			help[n] += " (" + a.link + ")"
		}
	}
	sort.Strings(names)
	return names, help
}

// CheckAttribute returns an error for an invalid value of an attribute.
func CheckAttribute(key, value string) error {
	a := attributes[key]
	if a == nil {
		return fmt.Errorf("%.40q is not an attribute of a VF", key)
	}
	_, err := a.check(value)
	return err
}

func checkMAC(s string) (string, error) {
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 || m[0]&1 != 0 {
		return "", fmt.Errorf("%.60q is not a MAC address of one card, such as 02:00:5e:10:00:01", s)
	}
	return m.String(), nil
}

func checkGUID(s string) (string, error) {
	// 16 digits, or groups of 2 or 4 with colons, as printed by ibstat and ip link
	digits := strings.TrimPrefix(strings.ReplaceAll(s, ":", ""), "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) != 16 || n == 0 || strings.Trim(s, "0123456789abcdefABCDEFx:") != "" {
		return "", fmt.Errorf("%.60q is not a GUID, such as 02:c9:03:00:00:10:20:30", s)
	}
	g := make(net.HardwareAddr, 8)
	for i := range g {
		g[i] = byte(n >> (56 - 8*i))
	}
	return g.String(), nil
}

func checkInt(low, high int) func(string) (string, error) {
	return func(s string) (string, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return "", fmt.Errorf("%.40q is not a number from %d to %d", s, low, high)
		}
		return strconv.Itoa(n), nil
	}
}

func checkOnOff(s string) (string, error) { return checkWord("on", "off")(s) }

func checkWord(words ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		for _, w := range words {
			if s == w {
				return w, nil
			}
		}
		return "", fmt.Errorf("%.40q is not one of %s", s, strings.Join(words, ", "))
	}
}

// Set sets attributes of a VF (Attributes) through its PF, all or none.
func (h *Host) Set(_ context.Context, at string, values map[string]string) (err error) {
	if _, err := change.Recover(h.State()); err != nil {
		return err
	}
	f := h.read(at)
	if f.Kind != VF || f.Index < 0 {
		return fmt.Errorf("device %s is not a VF: attributes are set of VFs", at)
	}
	var keys []string
	for k, v := range values {
		a := attributes[k]
		if err := CheckAttribute(k, v); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		if a.link != "" && f.Link != "" && a.link != f.Link {
			return fmt.Errorf("device %s is %s, and %s is an attribute of %s", at, f.Link, k, a.link)
		}
		keys = append(keys, k)
	}
	sort.Strings(keys)
	t, err := h.begin("set:" + at)
	if err != nil {
		return err
	}
	defer func() { err = h.finish(t, err) }()
	for _, k := range keys {
		v, _ := attributes[k].check(values[k])
		before, err := h.getVF(f.PF, f.Index, k)
		if err != nil {
			return fmt.Errorf("device %s: %s: %w", at, k, err)
		}
		if before == v {
			continue
		}
		if err := t.Record(h.vfChange(f.PF, f.Index, k, before)); err != nil {
			return err
		}
		if err := h.setVF(f.PF, f.Index, k, v); err != nil {
			return fmt.Errorf("device %s: %s: %w", at, k, err)
		}
	}
	return nil
}

// VFAttributes returns the attributes of a VF that can be read.
func (h *Host) VFAttributes(f *Function) map[string]string {
	out := map[string]string{}
	for k, a := range attributes {
		if a.link != "" && f.Link != "" && a.link != f.Link {
			continue
		}
		if v, err := h.getVF(f.PF, f.Index, k); err == nil && v != "" {
			out[k] = v
		}
	}
	return out
}

// settable reports whether a PF has a way to set its VFs' attributes.
func (h *Host) settable(pf *Function) bool {
	_, err := os.Stat(h.dev(pf.Address, "sriov"))
	return err == nil || len(pf.Net) > 0 && h.Links.There()
}

// sriovFile is the driver's own file of an attribute, "" if it has none.
func (h *Host) sriovFile(pf string, index int, key string) string {
	p := h.dev(pf, "sriov", strconv.Itoa(index), attributes[key].sysfs)
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// getVF reads an attribute of a VF; "" if the kernel does not report it.
func (h *Host) getVF(pf string, index int, key string) (string, error) {
	if p := h.sriovFile(pf, index, key); p != "" {
		v := strings.ToLower(h.attr(p))
		// "up (follow)": some releases append the cause
		v, _, _ = strings.Cut(v, " ")
		if unset(key, v) {
			return v, nil
		}
		if _, err := attributes[key].check(v); err != nil {
			return "", nil
		}
		return attributes[key].check(v)
	}
	n := h.ownInterface(pf)
	if n == "" {
		return "", errors.New("its physical function has no network interface to set it by")
	}
	return h.Links.Get(n, index, key)
}

// unset recognises the value of a GUID that was never set.
func unset(key, value string) bool {
	return value == noGUID && (key == "node-guid" || key == "port-guid")
}

// setVF writes an attribute of a VF.
func (h *Host) setVF(pf string, index int, key, value string) error {
	if p := h.sriovFile(pf, index, key); p != "" {
		if key == "policy" {
			value = strings.ToUpper(value[:1]) + value[1:]
		}
		if err := h.write(p, value); err != nil {
			return reason(err)
		}
		return nil
	}
	n := h.ownInterface(pf)
	if n == "" {
		return errors.New("its physical function has no network interface to set it by")
	}
	return h.Links.Set(n, index, key, value)
}
