package vsphere

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// reads are calls that change nothing.
var reads = []string{"Login", "Logout", "RetrieveServiceContent", "RetrieveProperties", "RetrievePropertiesEx", "ContinueRetrievePropertiesEx", "CreateContainerView",
	"CreateListView", "ModifyListView", "DestroyView", "CreateFilter", "DestroyPropertyFilter", "CreatePropertyCollector", "DestroyPropertyCollector", "WaitForUpdates",
	"WaitForUpdatesEx", "Fetch", "CancelWaitForUpdates", "FindChild", "FindByInventoryPath", "QueryConfigTarget", "CurrentTime", "Refresh", "ListProcessesInGuest"}

var anyMAC = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

// plainTypes are types that a client may name or omit, because no other type is possible there.
var plainTypes = []string{"", "string", "int", "long", "boolean", "ManagedObjectReference", "OptionValue", "VirtualDeviceConfigSpec"}

// element is a part of a request.
type element struct {
	Name  string
	Type  string // of the API; "": as declared
	Ref   string // type of a reference
	Text  string
	Parts []*element
}

// parseCall parses the call in a SOAP envelope.
func parseCall(t *testing.T, text string) *element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	root := &element{}
	at := []*element{root}
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			e := &element{Name: x.Name.Local}
			for _, a := range x.Attr {
				if a.Name.Local != "type" {
					continue
				}
				_, name, ok := strings.Cut(a.Value, ":")
				if !ok {
					name = a.Value
				}
				if a.Name.Space != "" {
					e.Type = name
				} else {
					e.Ref = name
				}
			}
			last := at[len(at)-1]
			last.Parts = append(last.Parts, e)
			at = append(at, e)
		case xml.EndElement:
			at = at[:len(at)-1]
		case xml.CharData:
			at[len(at)-1].Text += string(x)
		}
	}
	for e := root; ; e = e.Parts[len(e.Parts)-1] {
		if e.Name == "Body" {
			return e.Parts[0]
		}
		if len(e.Parts) == 0 {
			t.Fatalf("no call in %s", text)
		}
	}
}

func (e *element) part(name string) *element {
	for _, p := range e.Parts {
		if p.Name == name {
			return p
		}
	}
	return &element{}
}

// named returns an element's name, with the key that distinguishes it in its list.
func (e *element) named() string {
	switch e.Name {
	case "extraConfig":
		return "extraConfig[" + e.part("key").Text + "]"
	case "deviceChange":
		kind := e.part("device").Type
		if b := e.part("device").part("backing").Type; strings.HasPrefix(b, "VirtualPCI") {
			kind += " " + b
		}
		return "deviceChange[" + e.part("operation").Text + " " + kind + "]"
	case "config":
		if id := e.part("id").Text; id != "" {
			return "config[" + id + "]"
		}
	}
	return e.Name
}

// flat returns a call's settings, one line each: "METHOD PATH = VALUE". A reference is replaced by the name of its
// object.
func flat(t *testing.T, r vcsim.Request) []string {
	t.Helper()
	call := parseCall(t, r.Text)
	var list []string
	var walk func(path string, e *element)
	walk = func(path string, e *element) {
		if !slices.Contains(plainTypes, e.Type) {
			list = append(list, fmt.Sprintf("%s is a %s", path, e.Type))
		}
		if e.Ref != "" {
			list = append(list, path+" = "+referred(e.Ref, strings.TrimSpace(e.Text)))
			return
		}
		for _, p := range e.Parts {
			if e.Name != "extraConfig" || p.Name != "key" { // the key is part of the path
				walk(path+"."+p.named(), p)
			}
		}
		if text := strings.TrimSpace(e.Text); len(e.Parts) == 0 && text != "" {
			list = append(list, path+" = "+anyMAC.ReplaceAllString(ofOne.ReplaceAllString(text, "ID"), "MAC"))
		}
	}
	for _, p := range call.Parts {
		walk(call.Name+" "+p.named(), p)
	}
	if len(list) == 0 {
		list = []string{call.Name}
	}
	return list
}

// referred returns the name of a reference's object.
func referred(kind, id string) string {
	ref := types.ManagedObjectReference{Type: kind, Value: id}
	name := ""
	if e, ok := simulator.Map.Get(ref).(mo.Entity); ok {
		name = e.Entity().Name
	}
	switch {
	case kind == "VirtualMachine" && name != vcsim.Template:
		return "VM"
	case name != "":
		return kind + " " + name
	}
	return kind
}

// settingsOf returns the lines of all calls that change anything, each once, sorted.
func settingsOf(t *testing.T, list []vcsim.Request) []string {
	t.Helper()
	var all []string
	for _, r := range list {
		if !slices.Contains(reads, r.Method) {
			all = append(all, flat(t, r)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
