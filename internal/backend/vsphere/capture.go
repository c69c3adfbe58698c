package vsphere

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"

	"nearmetal/internal/topology"
)

// Suffix ends the names of captures of ESXi hosts.
const Suffix = ".vsphere.tar.gz"

// Capture is a host as described by vCenter, in the form of govc object.save: an ObjectContent of the HostSystem, and
// the answer of QueryConfigTarget.
type Capture struct {
	content types.ObjectContent
	target  types.QueryConfigTargetResponse
}

// Bounds of an archive: the number of its files, and the size of a file in bytes.
const (
	filesMost = 64
	fileMost  = 16 << 20
)

// Read reads a host by its name or path in the inventory; "" is the only host.
func (s *Session) Read(ctx context.Context, host string) (*Capture, error) {
	if !strings.HasPrefix(host, "/") {
		if err := s.datacenter(ctx, ""); err != nil {
			return nil, err
		}
	}
	h, err := s.finder.HostSystemOrDefault(ctx, host)
	if err != nil {
		return nil, s.explain(fmt.Sprintf("find host %.100q", host), err)
	}
	list, err := s.read(ctx, []types.ManagedObjectReference{h.Reference()}, hostProperties)
	if err != nil {
		return nil, err
	}
	c := &list[0]
	err = s.configTarget(ctx, c)
	return c, err
}

// read reads hosts in one call.
func (s *Session) read(ctx context.Context, refs []types.ManagedObjectReference, props []string) ([]Capture, error) {
	var content []types.ObjectContent
	if err := s.pc.Retrieve(ctx, refs, props, &content); err != nil {
		return nil, s.explain("read the hosts", err)
	}
	if len(content) != len(refs) {
		return nil, fmt.Errorf("vSphere server %s: %d of %d hosts can be read", s.access.server, len(content), len(refs))
	}
	list := make([]Capture, len(content))
	for i := range content {
		content[i].MissingSet = nil
		list[i].content = content[i]
	}
	return list, nil
}

// configTarget queries the devices and CPUs that the VMs of a host can have.
func (s *Session) configTarget(ctx context.Context, c *Capture) error {
	var h mo.HostSystem
	if err := s.retrieve(ctx, c.content.Obj, []string{"parent"}, &h); err != nil || h.Parent == nil {
		return s.explain("read the host's place", errors.Join(err, nilParent(h.Parent)))
	}
	var r mo.ComputeResource
	if err := s.retrieve(ctx, *h.Parent, []string{"environmentBrowser"}, &r); err != nil {
		return s.explain("read the host's place", err)
	}
	if r.EnvironmentBrowser == nil {
		return nil
	}
	return s.configTargetOf(ctx, c, *r.EnvironmentBrowser)
}

// configTargetOf queries a host's environment browser.
func (s *Session) configTargetOf(ctx context.Context, c *Capture, browser types.ManagedObjectReference) error {
	res, err := methods.QueryConfigTarget(ctx, s.client, &types.QueryConfigTarget{This: browser, Host: &c.content.Obj})
	if err != nil {
		return s.explain("ask what VMs of the host can have", err)
	}
	c.target = *res
	return nil
}

func nilParent(p *types.ManagedObjectReference) error {
	if p == nil {
		return errors.New("it has no parent")
	}
	return nil
}

// Topology returns the captured host.
func (c *Capture) Topology() (*topology.Host, error) {
	f, err := c.found()
	if err != nil {
		return nil, err
	}
	return f.topology()
}

// found decodes the properties. Those of an archive may be of any type: a wrong one is an error.
func (c *Capture) found() (f *found, err error) {
	defer func() {
		if r := recover(); r != nil { // raised by reflect, in govmomi
			f, err = nil, fmt.Errorf("a property is not of its type: %v", r)
		}
	}()
	f = &found{}
	if err := mo.LoadObjectContent([]types.ObjectContent{c.content}, &f.host); err != nil {
		return nil, err
	}
	if c.target.Returnval != nil {
		f.target = *c.target.Returnval
	}
	return f, nil
}

// Write writes the capture as an archive (tar, gzip). The same host produces the same bytes.
func (c *Capture) Write(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	name := "0000-" + c.content.Obj.Encode()
	if err := writeXML(t, name+".xml", c.content); err != nil {
		return err
	}
	// As in govc's format: a directory for each object, with a file for the answer of each method. govc stores it
	// under the browser; here it is under the host, because the answer describes this host.
	if err := writeXML(t, path.Join(c.content.Obj.Encode(), "QueryConfigTarget.xml"), c.target); err != nil {
		return err
	}
	return errors.Join(t.Close(), z.Close())
}

func writeXML(t *tar.Writer, name string, value any) error {
	var b bytes.Buffer
	e := xml.NewEncoder(&b)
	e.Indent("", "  ")
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("capture: %s: %w", name, err)
	}
	hdr := &tar.Header{Name: name, Mode: 0o444, ModTime: time.Unix(0, 0), Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: int64(b.Len())}
	if err := t.WriteHeader(hdr); err != nil {
		return err
	}
	_, err := t.Write(b.Bytes())
	return err
}

// ReadCapture reads an archive of Write, or an archive (tar, gzip) of one host from govc object.save.
func ReadCapture(r io.Reader) (*Capture, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	t := tar.NewReader(z)
	c := &Capture{}
	for n := 0; ; n++ {
		hdr, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if n >= filesMost {
			return nil, fmt.Errorf("more than %d files", filesMost)
		}
		if hdr.Typeflag != tar.TypeReg || !strings.HasSuffix(hdr.Name, ".xml") {
			continue
		}
		var to any
		switch {
		case path.Base(hdr.Name) == "QueryConfigTarget.xml":
			to = &c.target
		case strings.Contains(path.Base(hdr.Name), "HostSystem"):
			if c.content.Obj.Type != "" {
				return nil, errors.New("it has two hosts: an archive is of one")
			}
			to = &c.content
		default:
			continue
		}
		if err := readXML(io.LimitReader(t, fileMost), to); err != nil {
			return nil, fmt.Errorf("%.100q: %w", hdr.Name, err)
		}
	}
	if c.content.Obj.Type != "HostSystem" {
		return nil, errors.New("there is no HostSystem in it: nearmetal topology gather --vsphere makes such an archive")
	}
	return c, nil
}

// readXML decodes XML; input that govmomi's decoder cannot handle is an error.
func readXML(r io.Reader, to any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not what vCenter writes: %v", p)
		}
	}()
	d := xml.NewDecoder(r)
	d.TypeFunc = types.TypeFunc()
	return d.Decode(to)
}
