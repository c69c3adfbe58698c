package explain

import (
	"fmt"

	"nearmetal/internal/host/check"

	"libvirt.org/go/libvirtxml"
)

// rule is a row as data.
type rule struct {
	id, title, wanted string
	kvm               bool   // about KVM
	x86               bool   // about x86 guests
	place             bool   // its lines are part of the placement, which changes as a whole
	cost, source      string // the cost, and its source
	look              func(*laid) verdict
	// fix changes a copy of the domain; false: no change is needed. nil: it cannot be fixed.
	fix func(*laid, *libvirtxml.Domain) bool
}

// verdict is the result of a row.
type verdict struct {
	status check.Status
	found  string
	cost   string // replaces the rule's own, if the host determines how much
	fix    string // in words, if lines are not sufficient: the rule's fix is then not called
}

func found(s check.Status, format string, args ...any) verdict {
	return verdict{status: s, found: fmt.Sprintf(format, args...)}
}

// verdict examines the domain. Rows about KVM do not apply to a domain that cannot have it.
func (r *rule) verdict(l *laid) verdict {
	if r.kvm && l.noKVM != "" && l.d.Type != "kvm" {
		return found(check.NotApplicable, "the guest's CPU is emulated")
	}
	if r.x86 && !l.x86() {
		return found(check.Unknown, "not looked at in guests of %s", l.arch)
	}
	return r.look(l)
}

// Documents that rows cite.
const (
	nasa    = "NASA's AT5 report on virtualized InfiniBand"
	libvirt = "libvirt: Domain XML format"
	qemu    = "QEMU documentation"
)

// rules are all rows. Those that change more come first, because a fix works on the result of the previous ones.
var rules = join(machineRules, cpuRules, memoryRules, deviceRules)

func join(lists ...[]rule) []rule {
	var all []rule
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
