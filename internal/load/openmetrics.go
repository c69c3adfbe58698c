package load

import (
	"fmt"
	"io"
	"strings"
)

// escape escapes a text for use as a label's value.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// OpenMetrics writes readings as OpenMetrics text, which node_exporter's textfile collector accepts.
func OpenMetrics(w io.Writer, vms []VM) error {
	var b strings.Builder
	family := func(name, kind, unit, help string, rows func(row func(labels string, value any))) {
		fmt.Fprintf(&b, "# TYPE %s %s\n", name, kind)
		if unit != "" {
			fmt.Fprintf(&b, "# UNIT %s %s\n", name, unit)
		}
		fmt.Fprintf(&b, "# HELP %s %s\n", name, help)
		suffix := ""
		if kind == "counter" {
			suffix = "_total"
		}
		rows(func(labels string, value any) { fmt.Fprintf(&b, "%s%s{%s} %v\n", name, suffix, labels, value) })
	}
	each := func(f func(v *VM, labels string)) {
		for i := range vms {
			v := &vms[i]
			f(v, fmt.Sprintf(`cluster="%s",vm="%s"`, escape.Replace(v.Cluster), escape.Replace(v.Name)))
		}
	}
	family("nearmetal_vm_up", "gauge", "", "1 where the VM runs.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			up := 1
			if v.State == "dead" {
				up = 0
			}
			row(l, up)
		})
	})
	family("nearmetal_vm_vcpus", "gauge", "", "vCPUs of the VM.", func(row func(string, any)) {
		each(func(v *VM, l string) { row(l, v.VCPUs) })
	})
	family("nearmetal_vm_cpu_seconds", "counter", "seconds", "Time that the VM's threads ran.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			row(l+`,threads="vcpu"`, v.VCPU.Seconds())
			row(l+`,threads="other"`, v.Other.Seconds())
		})
	})
	family("nearmetal_vm_wait_seconds", "counter", "seconds", "Time that vCPUs waited for a CPU.", func(row func(string, any)) {
		each(func(v *VM, l string) { row(l, v.Wait.Seconds()) })
	})
	family("nearmetal_vm_memory_bytes", "gauge", "bytes", "Memory in use.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			row(l+`,pages="ordinary"`, v.ResidentBytes)
			row(l+`,pages="huge"`, v.HugeBytes)
		})
	})
	family("nearmetal_vm_exits", "counter", "", "Exits of vCPUs from the guest, where KVM's statistics may be read.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			if v.Exits != nil {
				row(l, *v.Exits)
			}
		})
	})
	family("nearmetal_vm_io_bytes", "counter", "bytes", "Bytes that QEMU read and wrote by system calls: shared file systems above all.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			if v.ReadBytes != nil && v.WrittenBytes != nil {
				row(l+`,direction="read"`, *v.ReadBytes)
				row(l+`,direction="write"`, *v.WrittenBytes)
			}
		})
	})
	family("nearmetal_vm_node_memory_bytes", "gauge", "bytes", "Memory in use by NUMA node of the host, with --nodes.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			for _, n := range v.Nodes {
				row(fmt.Sprintf(`%s,node="%d"`, l, n.Node), n.Bytes)
			}
		})
	})
	family("nearmetal_vm_region_bytes", "gauge", "bytes", "What of the region the VM has touched, with --nodes.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			if v.RegionBytes != nil {
				row(l, *v.RegionBytes)
			}
		})
	})
	family("nearmetal_vm_region_ranks", "gauge", "", "Ranks that use the region which the VM shares.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			if v.Region != nil {
				row(l, v.Region.Ranks)
			}
		})
	})
	family("nearmetal_vm_region_lines", "counter", "", "Lines of 64 bytes that the ranks which use the region now have read from it.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			if v.Region != nil && v.Region.Lines != nil {
				row(l, *v.Region.Lines)
			}
		})
	})
	family("nearmetal_vm_function_bytes", "counter", "bytes", "Bytes over a function of the host that the VM has, as its card counts.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			for _, f := range v.Functions {
				row(fmt.Sprintf(`%s,function="%s",direction="received"`, l, escape.Replace(f.Address)), f.Received)
				row(fmt.Sprintf(`%s,function="%s",direction="sent"`, l, escape.Replace(f.Address)), f.Sent)
			}
		})
	})
	family("nearmetal_vm_interface_bytes", "counter", "bytes", "Bytes over an interface of the VM, as its kernel counts, with --inside.", func(row func(string, any)) {
		each(func(v *VM, l string) {
			for _, i := range v.Interfaces {
				kind := "network"
				if i.RDMA {
					kind = "rdma"
				}
				row(fmt.Sprintf(`%s,interface="%s",kind="%s",direction="received"`, l, escape.Replace(i.Name), kind), i.Received)
				row(fmt.Sprintf(`%s,interface="%s",kind="%s",direction="sent"`, l, escape.Replace(i.Name), kind), i.Sent)
			}
		})
	})
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}
