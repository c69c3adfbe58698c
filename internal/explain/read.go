// Package explain reads a libvirt domain, places it on the topology of a host, and reports row by row the properties
// that prevent native speed: the current and the wanted value, the cost with its source, and the lines of XML that
// fix it. The wanted values are package plan's choice for a VM of that size on an empty host. Only the subjects of
// the rows are changed: all other bytes of the XML stay.
package explain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/text"
)

// Bounds of the input. A domain with hundreds of vCPUs has some 100 KiB.
const (
	maxBytes  = 1 << 20
	maxDepth  = 64
	maxVCPUs  = 4096
	maxMemory = 64 << 40 // bytes
	maxLost   = 10       // named
)

// Domain is a domain's XML as it was read.
type Domain struct {
	Name string
	// Lost lists elements and attributes that this program does not know: Fixed leaves them unchanged.
	Lost []string
	// NoKVM is the reason why the host runs no domain of type kvm; "": it does, or it is not known.
	NoKVM string
	// Networks has the XML of the libvirt networks that the domain names (NetworkNames), if libvirtd was queried.
	Networks map[string]string
	xml      *libvirtxml.Domain
	text     string // as it was read
}

// NetworkNames returns the libvirt networks of the domain's network cards, each once.
func (e *Domain) NetworkNames() []string {
	var list []string
	if e.xml.Devices == nil {
		return nil
	}
	for _, n := range e.xml.Devices.Interfaces {
		if s := n.Source; s != nil && s.Network != nil && !slices.Contains(list, s.Network.Network) {
			list = append(list, s.Network.Network)
		}
	}
	return list
}

// Read reads a domain's XML, as printed by virsh dumpxml. The error states what it is instead.
func Read(r io.Reader) (*Domain, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("more than %d KiB: no domain is that long", maxBytes>>10)
	}
	had, err := paths(string(text))
	if err != nil {
		return nil, err
	}
	d := &libvirtxml.Domain{}
	if err := d.Unmarshal(string(text)); err != nil {
		return nil, oneLine(err)
	}
	if d.Type != "kvm" && d.Type != "qemu" {
		return nil, fmt.Errorf("a domain of the type %.20q: only kvm and qemu are QEMU's", d.Type)
	}
	again, err := d.Marshal()
	if err != nil {
		return nil, oneLine(err)
	}
	has, err := paths(again)
	if err != nil {
		return nil, err
	}
	e := &Domain{Name: printable(d.Name), xml: d, text: string(text)}
	for p, n := range had {
		if has[p] < n && !strings.HasPrefix(p, "domain/metadata/") && p != "domain/devices/hostdev/source/address@type" { // it repeats the host device
			e.Lost = append(e.Lost, printable(p))
		}
	}
	sort.Strings(e.Lost)
	e.Lost = e.Lost[:min(len(e.Lost), maxLost)]
	if e.Name == "" {
		e.Name = "unnamed"
	}
	return e, nil
}

// paths counts the elements and attributes of an XML text by their paths, domain/devices/disk@type.
func paths(text string) (map[string]int, error) {
	dec := xml.NewDecoder(strings.NewReader(text))
	count := map[string]int{}
	var stack []string
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, oneLine(err)
		}
		switch t := tok.(type) {
		case xml.StartElement:
			if len(stack) == 0 && (t.Name.Local != "domain" || len(count) > 0) {
				return nil, fmt.Errorf("<%.40s> is not a domain: virsh dumpxml prints one", printable(t.Name.Local))
			}
			if len(stack) == maxDepth {
				return nil, fmt.Errorf("elements are nested more than %d deep", maxDepth)
			}
			path := t.Name.Local
			if len(stack) > 0 {
				path = stack[len(stack)-1] + "/" + path
			}
			if len(path) > 1000 {
				return nil, errors.New("the names of its elements are too long")
			}
			stack = append(stack, path)
			count[path]++
			for _, a := range t.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					count[path+"@"+a.Name.Local]++
				}
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
	if len(count) == 0 {
		return nil, errors.New("no XML: virsh dumpxml prints a domain's")
	}
	return count, nil
}

// oneLine returns an error without line breaks and control characters.
func oneLine(err error) error { return errors.New(printable(err.Error())) }

// printable returns untrusted text for one line of a report, at most 300 bytes of it.
func printable(s string) string { return text.Clip(text.Clean(s), 300) }
