// Package cloud reports, inside a VM of a cloud, what the cloud promised for it and what it has. It needs no rights:
// it reads cloud-init's public files, a mounted configuration drive, the metadata service, and the kernel's own view.
// All of them are treated as hostile.
package cloud

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Instance is a cloud's description of a VM. Missing values are "".
type Instance struct {
	Cloud  string `json:"cloud,omitempty"` // openstack, aws, azure, gce, or the maker's name
	Name   string `json:"name,omitempty"`
	UUID   string `json:"uuid,omitempty"`
	Flavor string `json:"flavor,omitempty"` // flavor, instance type, machine type
	Source string `json:"source,omitempty"` // source of Flavor, or else of the rest
}

const (
	fileMax   = 4 << 20 // bytes of a file
	answerMax = 1 << 20 // bytes of the metadata service's answer
	wordMax   = 255     // bytes of a name
	// askTimeout bounds the metadata service, which is local if it exists at all.
	askTimeout = 2 * time.Second
	// serviceAddress is the address of the metadata service, on every cloud that has one.
	serviceAddress = "169.254.169.254:80"
)

// ReadInstance reads the cloud's description of this VM; root is a captured tree, or "" for this VM, in which case
// the metadata service is also queried. It does not fail: a VM that no cloud has made is an empty Instance.
func ReadInstance(ctx context.Context, root string) *Instance {
	i := &Instance{Cloud: maker(root)}
	i.fromCloudInit(root)
	if i.Flavor == "" {
		i.fromDrive(root)
	}
	if i.Flavor == "" && (root == "" || root == "/") && i.Cloud != "" {
		i.fromService(ctx, serviceAddress)
	}
	return i
}

// read reads a file of a tree, or returns nil.
func read(root, name string) []byte {
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileMax))
	if err != nil {
		return nil
	}
	return b
}

// word sanitizes and shortens a cloud's text. text.Clean is not used, because names are compared: a newline becomes
// '?' instead of a space that could be part of the name, and a cut is not marked.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(s), "?"))
	if len(s) > wordMax {
		s = strings.ToValidUTF8(s[:wordMax], "")
	}
	return s
}

// maker returns the cloud according to the machine's firmware.
func maker(root string) string {
	line := func(name string) string { return word(string(read(root, "/sys/class/dmi/id/"+name))) }
	vendor, product := line("sys_vendor"), line("product_name")
	switch {
	case strings.Contains(vendor, "OpenStack") || strings.Contains(product, "OpenStack"):
		return "openstack"
	case vendor == "Amazon EC2":
		return "aws"
	case vendor == "Google":
		return "gce"
	case vendor == "Microsoft Corporation" && product == "Virtual Machine":
		return "azure"
	}
	return ""
}

// set fills in values that are not known yet.
func (i *Instance) set(source, cloud, name, uuid, flavor string) {
	for _, v := range []struct {
		to   *string
		from string
	}{{&i.Cloud, cloud}, {&i.Name, name}, {&i.UUID, uuid}, {&i.Flavor, flavor}} {
		if w := word(v.from); *v.to == "" && w != "" {
			*v.to = w
			i.Source = source
		}
	}
}

// fromCloudInit reads the files that cloud-init leaves for all users (its docs: instance metadata).
func (i *Instance) fromCloudInit(root string) {
	const name = "/run/cloud-init/instance-data.json"
	var d struct {
		V1 struct {
			Platform string `json:"platform"`
			Name     string `json:"local_hostname"`
			ID       string `json:"instance_id"`
		} `json:"v1"`
		DS struct {
			EC2 struct {
				Type string `json:"instance-type"`
			} `json:"ec2_metadata"`
			Meta struct {
				Name string `json:"name"`
				UUID string `json:"uuid"`
				Type string `json:"instance-type"`
				IMDS struct {
					Compute struct {
						Size string `json:"vmSize"`
					} `json:"compute"`
				} `json:"imds"`
			} `json:"meta_data"`
		} `json:"ds"`
	}
	if b := read(root, name); b == nil || json.Unmarshal(b, &d) != nil {
		return
	}
	first := func(list ...string) string {
		for _, s := range list {
			if s != "" {
				return s
			}
		}
		return ""
	}
	i.set(name, d.V1.Platform, first(d.DS.Meta.Name, d.V1.Name), first(d.DS.Meta.UUID, d.V1.ID),
		first(d.DS.EC2.Type, d.DS.Meta.Type, d.DS.Meta.IMDS.Compute.Size))
}

// fromDrive reads OpenStack's configuration drive if it is mounted.
func (i *Instance) fromDrive(root string) {
	sc := bufio.NewScanner(bytes.NewReader(read(root, "/proc/mounts")))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 3 || f[2] != "iso9660" && f[2] != "vfat" {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(f[1])
		b := read(root, at+"/openstack/latest/meta_data.json")
		if b == nil {
			continue
		}
		var e struct {
			Type string `json:"instance-type"`
		}
		if ec2 := read(root, at+"/ec2/latest/meta-data.json"); ec2 != nil {
			_ = json.Unmarshal(ec2, &e) // without it no flavor is known
		}
		i.fromOpenStack("the configuration drive at "+word(at), b, e.Type)
		return
	}
}

func (i *Instance) fromOpenStack(source string, text []byte, flavor string) {
	var d struct {
		Name string `json:"name"`
		UUID string `json:"uuid"`
	}
	if json.Unmarshal(text, &d) == nil {
		i.set(source, "openstack", d.Name, d.UUID, flavor)
	}
}

// fromService queries the metadata service: OpenStack's own names, then those that it shares with EC2.
func (i *Instance) fromService(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	const source = "the metadata service"
	flavor, err := ask(ctx, address, "/latest/meta-data/instance-type")
	if err != nil {
		return
	}
	if text, err := ask(ctx, address, "/openstack/latest/meta_data.json"); err == nil {
		i.fromOpenStack(source, text, string(flavor))
	}
	i.set(source, "", "", "", string(flavor))
}

// ask gets one path over HTTP/1.0, which needs no library.
func ask(ctx context.Context, address, path string) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return nil, err
		}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(c, answerMax+1))
	if err != nil {
		return nil, err
	}
	head, body, ok := bytes.Cut(text, []byte("\r\n\r\n"))
	f := strings.Fields(string(head[:min(len(head), 64)]))
	if !ok || len(text) > answerMax || len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") {
		return nil, errors.New("not an answer of HTTP")
	}
	if n, err := strconv.Atoi(f[1]); err != nil || n != 200 {
		return nil, fmt.Errorf("the metadata service says %.3s", f[1])
	}
	return body, nil
}
