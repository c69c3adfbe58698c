package domain

import (
	"fmt"
	"io"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
)

// note is the comment in each domain that is rendered for a plan.
const note = `<!-- What the plan decides for %s on %s. Add what the guest starts from (a disk, or a kernel) and its network.
     The CPUs, nodes and huge pages are those of that host. -->
`

// File is the XML of one VM's domain.
type File struct {
	Name string // of the domain
	XML  string
}

// Files returns the domains of a plan's VMs, in their order, for x86-64 hosts. They are named after the cluster and
// the VM, and the region likewise.
func Files(p *plan.Plan, s backend.Settings) ([]File, error) {
	prefix := ""
	if p.Cluster != "" {
		prefix = p.Cluster + "-"
	}
	region := "nearmetal-region"
	if p.Cluster != "" {
		region = "nearmetal-" + p.Cluster
	}
	var files []File
	for i := range p.VMs {
		vm := &p.VMs[i]
		d, err := Make(prefix+vm.Name, region, vm, s)
		if err != nil {
			return nil, err
		}
		text, err := Marshal(d)
		if err != nil {
			return nil, err
		}
		files = append(files, File{d.Name, fmt.Sprintf(note, vm.Name, vm.Host) + text})
	}
	return files, nil
}

// Render writes the domains of a plan's VMs one after the other.
func Render(w io.Writer, p *plan.Plan, s backend.Settings) error {
	files, err := Files(p, s)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := io.WriteString(w, f.XML); err != nil {
			return err
		}
	}
	return nil
}

// Marshal returns a domain's XML, with a final newline.
func Marshal(d *libvirtxml.Domain) (string, error) {
	text, err := d.Marshal()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, line := range strings.Split(text, "\n") {
		b.WriteString(short(line))
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// short rewrites an element without content as libvirt does: <acpi/>.
func short(line string) string {
	open, end, ok := strings.Cut(line, "></")
	name, _, _ := strings.Cut(strings.TrimLeft(open, " <"), " ")
	if !ok || end != name+">" || strings.Contains(open, ">") {
		return line
	}
	return open + "/>"
}
