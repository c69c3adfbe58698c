package explain

import (
	"context"
	"errors"
	"testing"

	"nearmetal/internal/backend/libvirt/daemon"
)

// answers are what a libvirtd has of one domain.
type answers map[string]string

func (a answers) XML(context.Context, *daemon.Domain) (string, error) { return a["xml"], nil }

func (a answers) Defined(_ context.Context, _ *daemon.Domain, secrets bool) (string, error) {
	if secrets {
		return a["secrets"], nil
	}
	return a["defined"], nil
}

func (a answers) Network(_ context.Context, name string) (string, error) {
	if name == "gone" {
		return "", &daemon.Said{Text: "no network"}
	}
	if x, ok := a[name]; ok {
		return x, nil
	}
	return "", errors.New("the connection is cut")
}

// Each version is read by its own call. A network that libvirtd does not have is left out; another error is returned.
func TestFetch(t *testing.T) {
	doc := func(name, network string) string {
		return "<domain type='kvm'><name>" + name + "</name><memory>1024</memory><vcpu>1</vcpu><os><type>hvm</type></os><devices>" +
			"<interface type='network'><source network='" + network + "'/></interface></devices></domain>"
	}
	a := answers{"xml": doc("x", "default"), "defined": doc("x2", "gone"), "secrets": doc("x3", "cut"), "default": "<network/>"}
	d := &daemon.Domain{Name: "x"}
	e, text, err := Fetch(context.Background(), a, d, Running)
	if err != nil || e.Name != "x" || text != a["xml"] || e.Networks["default"] != "<network/>" {
		t.Errorf("%+v, %q, %v", e, text, err)
	}
	if e, _, err = Fetch(context.Background(), a, d, Next); err != nil || e.Name != "x2" || len(e.Networks) != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, _, err = Fetch(context.Background(), a, d, NextSecrets); err == nil || err.Error() != "the connection is cut" {
		t.Error(err)
	}
	if _, _, err = Fetch(context.Background(), answers{"xml": "no XML"}, d, Running); err == nil {
		t.Error("what is not XML is read")
	}
}
