package device

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/host/change"
)

// keep starts a process outside of any job that has a file open, as a user's own process does that got the
// descriptor.
func keep(t *testing.T, file string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.Stdin = f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// TestHeldIsSetAside: a VF whose group a user keeps open is not leased, and is revoked as far as possible: the file
// becomes root's, the rest follows when the user closes it. Other VFs of the same job are returned at once.
func TestHeldIsSetAside(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf0, vf1 := vfAddress(0), vfAddress(1)
	for _, at := range []string{vf0, vf1} {
		if err := h.Lease(ctx, "7.n1", at, 7001, 7001, nil); err != nil {
			t.Fatal(err)
		}
		k.settle()
	}
	file := h.read(vf0).VFIO
	holder := keep(t, filepath.Join(root, file))
	var held *HeldError
	_, err := h.Return(func(job string) bool { return job == "7.n1" })
	if !errors.As(err, &held) || held.Address != vf0 || !strings.Contains(held.Holder, "sleep (process ") {
		t.Fatalf("the end of a job whose VF is held: %v", err)
	}
	k.settle()
	if f := h.read(vf0); f.Owner != "root" {
		t.Errorf("the file of a VF that is held is %s's", f.Owner)
	}
	if list, err := h.List(true); err != nil {
		t.Error(err)
	} else {
		for _, f := range list {
			if f.Address == vf0 && f.Holder != held.Holder {
				t.Errorf("the list has %q for its holder, want %q", f.Holder, held.Holder)
			}
		}
	}
	if f := h.read(vf1); f.Driver == vfioDriver {
		t.Errorf("the job's other VF did not go back: %+v", f)
	}
	if err := h.Lease(ctx, "8.n1", vf0, 7002, 7002, nil); !errors.As(err, &held) {
		t.Errorf("a VF that is held was leased: %v", err)
	}
	if err := h.Lease(ctx, "8.n1", vf1, 7002, 7002, nil); err != nil {
		t.Errorf("another VF: %v", err)
	}
	k.settle()
	holder.Process.Kill()
	holder.Wait()
	if err := h.Lease(ctx, "9.n1", vf0, 7003, 7003, nil); err != nil {
		t.Errorf("after the holder's end: %v", err)
	}
	k.settle()
	if _, err := h.Return(func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	if list, err := change.List(h.State()); err != nil || len(list) != 0 {
		t.Errorf("%v, %+v", err, list)
	}
}

// TestHeldWithoutLease: a function that an administrator bound is not leased while its group is open, even if none of
// its devices is.
func TestHeldWithoutLease(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf0 := vfAddress(0)
	if err := h.Bind(ctx, vf0, 0, 0); err != nil {
		t.Fatal(err)
	}
	k.settle()
	keep(t, filepath.Join(root, h.read(vf0).VFIO))
	var held *HeldError
	if err := h.Lease(ctx, "7.n1", vf0, 7001, 7001, nil); !errors.As(err, &held) {
		t.Errorf("leased: %v", err)
	}
}

// TestResetBetweenUsers: between two users a function is reset if the kernel supports that; a function that cannot be
// reset is not leased.
func TestResetBetweenUsers(t *testing.T) {
	root := capture(t, "s1")
	k := emulate(t, root)
	h := open(t, root)
	vf0 := vfAddress(0)
	reset := h.dev(vf0, "reset")
	if err := os.WriteFile(reset, nil, 0o200); err != nil {
		t.Fatal(err)
	}
	if err := h.Lease(ctx, "7.n1", vf0, 7001, 7001, nil); err != nil {
		t.Fatal(err)
	}
	k.settle()
	if text, _ := os.ReadFile(reset); strings.TrimSpace(string(text)) != "1" {
		t.Errorf("reset: %q", text)
	}
	if _, err := h.Return(func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	k.settle()
	if err := os.Remove(reset); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(reset, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Lease(ctx, "8.n1", vf0, 7002, 7002, nil); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("leased without a reset: %v", err)
	}
	k.settle()
	if f := h.read(vf0); f.Owner == userName(7002) {
		t.Errorf("%+v", f)
	}
}
