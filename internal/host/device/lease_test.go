package device

import (
	"fmt"
	"testing"

	"nearmetal/internal/host/change"
)

// TestLease: a function leased to a job is restored when it is returned, bound by an administrator or not; the
// functions of a job that is gone are taken back when they are leased again.
func TestLease(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf0, vf1 := vfAddress(0), vfAddress(1)
	if err := h.Bind(ctx, vf0, 0, 0); err != nil {
		t.Fatal(err)
	}
	k.settle()
	before := k.state()
	lease := func(job, at string, uid int) {
		t.Helper()
		if err := h.Lease(ctx, job, at, uid, uid, nil); err != nil {
			t.Fatal(err)
		}
		k.settle()
		if f := h.read(at); f.Driver != vfioDriver || f.Owner != userName(uid) {
			t.Errorf("%s: %+v\n%s", job, f, k.state())
		}
	}
	lease("7.n1", vf0, 7001)
	lease("7.n1", vf1, 7001)
	if _, err := h.Return(func(job string) bool { return job == "8.n1" }); err != nil {
		t.Error(err)
	}
	if f := h.read(vf0); f.Owner == "root" {
		t.Errorf("another job's end took it: %+v", f)
	}
	lease("9.n1", vf0, 7002) // 7 was lost
	if _, err := h.Return(func(job string) bool { return job == "7.n1" || job == "9.n1" }); err != nil {
		t.Error(err)
	}
	k.settle()
	if after := k.state(); after != before {
		t.Errorf("after the jobs:\n%sbefore them:\n%s", after, before)
	}
	list, err := change.List(h.State())
	if err != nil || len(list) != 1 || list[0].Name != "bind:"+vf0 {
		t.Errorf("%v, %+v", err, list)
	}
	wantErr(t, h.Lease(ctx, "../x", vf0, 0, 0, nil), "cannot name a job")
}

// TestLeaseOf: the name of a lease's transaction contains its job and its function, also in an older nearmetal's
// form.
func TestLeaseOf(t *testing.T) {
	for name, want := range map[string]string{
		"lease-7.n1:0000:41:10.0": "7.n1 0000:41:10.0 true", "lent-7.n1:0000:41:10.0": "7.n1 0000:41:10.0 true",
		"bind:0000:41:10.0": "  false", "lease-7.n1:x": "7.n1 x false",
	} {
		if job, at, ok := leaseOf(name); fmt.Sprint(job, " ", at, " ", ok) != want {
			t.Errorf("%s: %q %q %v, want %q", name, job, at, ok, want)
		}
	}
}
