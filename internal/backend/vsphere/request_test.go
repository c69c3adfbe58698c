package vsphere

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// TestRequests compares the requests to vCenter for a linked clone with a virtual function, word by word.
func TestRequests(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{Hosts: 1})
	ctx := context.Background()
	a, err := ReadAccess("")
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCenter(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.release()
	if err := c.datacenter(ctx, ""); err != nil {
		t.Fatal(err)
	}
	vm, err := c.finder.VirtualMachine(ctx, vcsim.Template)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.task(ctx, "snapshot", func(ctx context.Context) (*object.Task, error) { return vm.CreateSnapshot(ctx, "s", "", false, false) }); err != nil {
		t.Fatal(err)
	}
	l, err := begin(t, strings.NewReplacer("count: 2", "count: 1", "portGroup: DC0_DVPG0", "portGroup: DC0_DVPG0, linked: true, gateway: 10.77.0.254, dns: [10.77.0.253]").Replace(fileText))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.start(ctx); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range []string{"CloneVM_Task", "ReconfigVM_Task", "CustomizeVM_Task", "PowerOnVM_Task"} {
		b.WriteString(plainXML(s.Last(m)) + "\n")
	}
	l.j.undo(t)
	golden(t, "requests.txt", b.String())
}

var (
	ofOne   = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|00:50:56:[0-9a-f:]{8}`)
	ids     = regexp.MustCompile(`>([a-z]+)-[0-9]+<`)
	noise   = regexp.MustCompile(` ?xmlns(:[A-Za-z]+)?="[^"]*"|</?(soapenv:)?(Envelope|Body)[^>]*>|<\?xml[^>]*>|XMLSchema-instance:`)
	numbers = regexp.MustCompile(`<(key|controllerKey|unitNumber)>[0-9]+<`)
)

// plainXML formats a request's body, one element per line, without the parts that differ between starts.
func plainXML(text string) string {
	text = noise.ReplaceAllString(text, "")
	text = ofOne.ReplaceAllString(text, "ID")
	text = ids.ReplaceAllString(text, ">$1-N<")
	text = numbers.ReplaceAllString(text, "<$1>N<")
	return strings.TrimSpace(strings.ReplaceAll(text, "><", ">\n<"))
}
