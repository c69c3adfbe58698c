package hook

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/topology"
)

// Domain is the part of a domain that the hook uses.
type Domain struct {
	UUID    string
	Name    string // libvirt's name: instance-00000001
	Project string // OpenStack's project: a UUID
	Group   string // group of servers
	Flavor  string
	Specs   map[string]string // the flavor's extra specs
	Bus     string            // BusPCIe (q35), BusPCI (i440fx), or "" for a machine without either
	Port    int               // number of a free PCI Express root port; 0: none
	Node    int               // NUMA node of this host with the first part of its memory; -1: any
	Reboots bool              // a reset restarts it
	User    int               // user of its QEMU, if libvirtd reports it by number; else -1
}

// Buses into which a region can be plugged.
const (
	BusPCIe = "pcie"
	BusPCI  = "pci"
)

// xmlMax bounds a domain's XML in bytes.
const xmlMax = 8 << 20

var (
	uuidForm    = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	projectForm = lazyregexp.New(`^[0-9a-fA-F-]{1,64}$`) // Keystone's IDs have no dashes
	machineForm = lazyregexp.New(`^pc-(i440fx|q35)-|^(pc|q35)$`)
)

// novaSpace is the prefix of the namespace of Nova's metadata, followed by 1.0 or 1.1.
const novaSpace = "http://openstack.org/xmlns/libvirt/nova/"

type xmlDomain struct {
	Name     string        `xml:"name"`
	UUID     string        `xml:"uuid"`
	Instance []xmlInstance `xml:"metadata>instance"`
	Type     struct {
		Arch    string `xml:"arch,attr"`
		Machine string `xml:"machine,attr"`
	} `xml:"os>type"`
	OnReboot string `xml:"on_reboot"`
	Memory   struct {
		Nodeset string `xml:"nodeset,attr"`
	} `xml:"numatune>memory"`
	Cells []struct {
		ID      int    `xml:"cellid,attr"`
		Nodeset string `xml:"nodeset,attr"`
	} `xml:"numatune>memnode"`
	Devices struct {
		All []xmlDevice `xml:",any"`
	} `xml:"devices"`
	Labels []struct {
		Model string `xml:"model,attr"`
		Label string `xml:"label"`
	} `xml:"seclabel"`
}

type xmlInstance struct {
	XMLName xml.Name
	Name    string `xml:"name"`
	Flavor  struct {
		Name  string `xml:"name,attr"`
		Specs []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:",chardata"`
		} `xml:"extraSpecs>extraSpec"`
	} `xml:"flavor"`
	Project struct {
		UUID string `xml:"uuid,attr"`
	} `xml:"owner>project"`
}

type xmlDevice struct {
	XMLName xml.Name
	Type    string `xml:"type,attr"`
	Model   string `xml:"model,attr"`
	Index   int    `xml:"index,attr"`
	Address struct {
		Type string `xml:"type,attr"`
		Bus  string `xml:"bus,attr"`
	} `xml:"address"`
}

// ParseDomain parses a domain's XML. It returns nil for a domain that is not Nova's.
func ParseDomain(r io.Reader) (*Domain, error) {
	text, err := io.ReadAll(io.LimitReader(r, xmlMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading the domain's XML: %w", err)
	}
	if len(text) > xmlMax {
		return nil, fmt.Errorf("the domain's XML has more than %d bytes", xmlMax)
	}
	if !bytes.Contains(text, []byte(novaSpace)) {
		return nil, nil
	}
	var x xmlDomain
	if err := xml.Unmarshal(text, &x); err != nil {
		return nil, fmt.Errorf("the domain's XML: %w", err)
	}
	var nova *xmlInstance
	for i := range x.Instance {
		if strings.HasPrefix(x.Instance[i].XMLName.Space, novaSpace) {
			nova = &x.Instance[i]
		}
	}
	if nova == nil {
		return nil, nil
	}
	d := &Domain{UUID: strings.TrimSpace(x.UUID), Name: strings.TrimSpace(x.Name), Project: nova.Project.UUID,
		Group: GroupOf(strings.TrimSpace(nova.Name)), Flavor: nova.Flavor.Name, Specs: map[string]string{}, Node: -1, User: -1,
		Reboots: x.OnReboot == "" || strings.TrimSpace(x.OnReboot) == "restart"}
	switch {
	case !uuidForm().MatchString(d.UUID):
		return nil, fmt.Errorf("the domain's XML: %.60q is not a UUID", d.UUID)
	case !projectForm().MatchString(d.Project):
		return nil, fmt.Errorf("domain %s: Nova's metadata names no project", d.UUID)
	}
	for _, s := range nova.Flavor.Specs {
		d.Specs[s.Name] = strings.TrimSpace(s.Value)
	}
	for _, l := range x.Labels { // +64055:+64055 of model dac are user and group of a running domain
		user, _, _ := strings.Cut(strings.TrimSpace(l.Label), ":")
		if n, err := strconv.ParseUint(strings.TrimPrefix(user, "+"), 10, 31); err == nil && l.Model == "dac" {
			d.User = int(n)
		}
	}
	nodes := x.Memory.Nodeset
	for _, c := range x.Cells {
		if c.ID == 0 {
			nodes = c.Nodeset
		}
	}
	if list, err := topology.ParseList(nodes, 1023); err == nil && len(list) > 0 {
		d.Node = list[0]
	}
	if x.Type.Arch != "x86_64" || !machineForm().MatchString(x.Type.Machine) {
		return d, nil // without a known bus
	}
	d.Bus = BusPCI
	if strings.Contains(x.Type.Machine, "q35") {
		d.Bus, d.Port = BusPCIe, freePort(x.Devices.All)
	}
	return d, nil
}

// freePort returns the number of the last root port without a device; 0: all are used.
func freePort(list []xmlDevice) int {
	taken := map[string]bool{}
	for _, d := range list {
		if d.Address.Type == "pci" {
			taken[strings.ToLower(d.Address.Bus)] = true
		}
	}
	port := 0
	for _, d := range list {
		if d.XMLName.Local == "controller" && d.Type == "pci" && d.Model == "pcie-root-port" && d.Index > 0 && d.Index < 256 &&
			!taken[fmt.Sprintf("0x%02x", d.Index)] && !taken[fmt.Sprint(d.Index)] {
			port = max(port, d.Index)
		}
	}
	return port
}

// GroupOf returns the group of a server: its name up to the last '-' or '.'. nearmetal names servers CLUSTER-VM, and
// Nova names servers that are created together NAME-1, NAME-2. Nova writes no server group into a domain's XML.
func GroupOf(server string) string {
	if i := strings.LastIndexAny(server, "-."); i > 0 {
		return server[:i]
	}
	return server
}
