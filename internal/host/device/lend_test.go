package device

import (
	"testing"

	"nearmetal/internal/host/change"
)

// What is lent to a job goes back to what it was, bound by an administrator or not; what a job
// that is gone had is taken back when it is lent again.
func TestLend(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf0, vf1 := vfAddress(0), vfAddress(1)
	if err := h.Bind(ctx, vf0, 0, 0); err != nil {
		t.Fatal(err)
	}
	k.settle()
	before := k.state()
	lend := func(job, at string, uid int) {
		t.Helper()
		if err := h.Lend(ctx, job, at, uid, uid); err != nil {
			t.Fatal(err)
		}
		k.settle()
		if f := h.read(at); f.Driver != vfioDriver || f.Owner != userName(uid) {
			t.Errorf("%s: %+v\n%s", job, f, k.state())
		}
	}
	lend("7.n1", vf0, 7001)
	lend("7.n1", vf1, 7001)
	if _, err := h.Return(func(job string) bool { return job == "8.n1" }); err != nil {
		t.Error(err)
	}
	if f := h.read(vf0); f.Owner == "root" {
		t.Errorf("another job's end took it: %+v", f)
	}
	lend("9.n1", vf0, 7002) // 7 was lost
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
	wantErr(t, h.Lend(ctx, "../x", vf0, 0, 0), "cannot name a job")
}
