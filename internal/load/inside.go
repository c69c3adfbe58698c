package load

import (
	"bufio"
	"bytes"
	"path"
	"strconv"
	"strings"
)

// InsideCommand prints, in a VM, the input of ReadInside: the counters of its network interfaces and of the ports of
// its RDMA devices.
const InsideCommand = `cat /proc/net/dev; grep -s . /dev/null /sys/class/infiniband/*/ports/*/counters/port_*_data; true`

// insideMost bounds the interfaces of a VM that are kept.
const insideMost = 64

// Interface is the traffic of a network interface of a VM, or of a port of an RDMA device in it, as the VM's kernel
// counts it. A virtual function is included if its driver counts.
type Interface struct {
	Name     string `json:"name"` // eth0, or mlx5_0/1
	RDMA     bool   `json:"rdma,omitempty"`
	Received uint64 `json:"receivedBytes"`
	Sent     uint64 `json:"sentBytes"`
}

// ReadInside parses the output of InsideCommand into v.Interfaces. The VM may print anything: names that an interface
// cannot have and values that are not numbers are ignored, as is the loopback interface.
func (v *VM) ReadInside(out []byte) {
	v.Interfaces = []Interface{}
	add := func(name string, rdma bool) *Interface {
		for i := range v.Interfaces {
			if v.Interfaces[i].Name == name && v.Interfaces[i].RDMA == rdma {
				return &v.Interfaces[i]
			}
		}
		if len(v.Interfaces) == insideMost {
			return nil
		}
		v.Interfaces = append(v.Interfaces, Interface{Name: name, RDMA: rdma})
		return &v.Interfaces[len(v.Interfaces)-1]
	}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		name, rest, ok := strings.Cut(strings.TrimSpace(sc.Text()), ":")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if device, ok := strings.CutPrefix(name, "/sys/class/infiniband/"); ok && len(f) == 1 {
			parts := strings.Split(device, "/") // DEVICE/ports/N/counters/port_rcv_data
			words, err := strconv.ParseUint(f[0], 10, 62)
			if len(parts) != 5 || err != nil || !interfaceName(parts[0]) || !interfaceName(parts[2]) {
				continue
			}
			i := add(parts[0]+"/"+parts[2], true)
			// In words of four bytes (Documentation/ABI/stable/sysfs-class-infiniband).
			switch counter := path.Base(device); {
			case i == nil:
			case counter == "port_rcv_data":
				i.Received = words * 4
			case counter == "port_xmit_data":
				i.Sent = words * 4
			}
			continue
		}
		if len(f) != 16 || name == "lo" || !interfaceName(name) { // 8 numbers for received data, 8 for sent data
			continue
		}
		received, err := strconv.ParseUint(f[0], 10, 64)
		sent, err2 := strconv.ParseUint(f[8], 10, 64)
		if i := add(name, false); err == nil && err2 == nil && i != nil {
			i.Received, i.Sent = received, sent
		}
	}
}

// interfaceName reports whether a kernel accepts s as the name of a device, and a terminal shows it safely.
func interfaceName(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// Carried returns the bytes received and sent by the VM's RDMA devices, or by its other interfaces, and whether it has
// any of them.
func (v *VM) Carried(rdma bool) (received, sent uint64, any bool) {
	for _, i := range v.Interfaces {
		if i.RDMA == rdma {
			received, sent, any = received+i.Received, sent+i.Sent, true
		}
	}
	return received, sent, any
}
