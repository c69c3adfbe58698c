// Package explain reads a domain of libvirt, lays it on the topology of a host, and says row by row what keeps
// it from native speed: what was found, what is wanted, what it costs and who says so, and the lines of XML
// that fix it. What is wanted is what package plan would choose for a VM of that size on an empty host.
// It changes nothing but what its rows are about: all other bytes of the XML stay.
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

// Limits of what is read. A domain of hundreds of vCPUs has some 100 KiB.
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
	// Lost are elements and attributes that this program does not know: Fixed leaves them as they are.
	Lost []string
	// NoKVM is why the host runs no domain of type kvm; "": it does, or nobody has asked.
	NoKVM string
	// Networks are the XML of those of libvirt's networks that the domain names (NetworkNames), where libvirtd was asked.
	Networks map[string]string
	xml      *libvirtxml.Domain
	text     string // as it was read
}

// NetworkNames are libvirt's networks that the domain's network cards are on, each once.
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

// Read reads a domain's XML, as virsh dumpxml prints it. Errors say what it is instead.
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
		if has[p] < n && !strings.HasPrefix(p, "domain/metadata/") && p != "domain/devices/hostdev/source/address@type" { // it says what the host device says
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

// oneLine is an error without line breaks and control characters.
func oneLine(err error) error { return errors.New(printable(err.Error())) }

// printable returns text of others for one line of a report, at most 300 bytes of it.
func printable(s string) string { return text.Clip(text.Clean(s), 300) }
