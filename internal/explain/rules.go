package explain

import (
	"fmt"

	"nearmetal/internal/host/check"

	"libvirt.org/go/libvirtxml"
)

// rule is a row as data.
type rule struct {
	id, title, wanted string
	kvm               bool   // it is about what KVM does
	x86               bool   // it is about guests of x86
	place             bool   // its lines are a part of the placement, which changes whole
	cost, source      string // what it costs, and who says so
	look              func(*laid) verdict
	// fix changes a copy of the domain; false: there is nothing to be done here. nil: nobody can.
	fix func(*laid, *libvirtxml.Domain) bool
}

// verdict is what a row found.
type verdict struct {
	status check.Status
	found  string
	cost   string // over the rule's own, where the host says how much
	fix    string // in words, where lines are not enough: the rule's fix is not asked
}

func found(s check.Status, format string, args ...any) verdict {
	return verdict{status: s, found: fmt.Sprintf(format, args...)}
}

// verdict looks at the domain. What is about KVM does not apply to a domain that cannot have it.
func (r *rule) verdict(l *laid) verdict {
	if r.kvm && l.noKVM != "" && l.d.Type != "kvm" {
		return found(check.NotApplicable, "the guest's CPU is emulated")
	}
	if r.x86 && !l.x86() {
		return found(check.Unknown, "not looked at in guests of %s", l.arch)
	}
	return r.look(l)
}

// Documents that rows name.
const (
	nasa    = "NASA's AT5 report on virtualized InfiniBand"
	libvirt = "libvirt: Domain XML format"
	qemu    = "QEMU documentation"
)

// rules are all rows. What changes more comes first: a fix finds what the ones before it have left.
var rules = join(machineRules, cpuRules, memoryRules, deviceRules)

func join(lists ...[]rule) []rule {
	var all []rule
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
