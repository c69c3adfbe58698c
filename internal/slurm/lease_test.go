package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nearmetal/internal/host/device"
	"nearmetal/test/hosttree"
)

// Checks that a VF that a process outside of the job keeps open is skipped: the job gets another one of its type, or
// fails without blaming the host. A VF that another job got as a substitute is not taken from it.
func TestLeaseHeld(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root hands devices over")
	}
	root, err := filepath.EvalSymlinks(hosttree.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	keep := regexp.MustCompile(`^(\./)?(sys/bus/pci|sys/kernel/iommu_groups|sys/devices/pci0000)`)
	if err := hosttree.Unpack(root, "../host/device/testdata/s2.tar.gz", keep.MatchString); err != nil {
		t.Fatal(err)
	}
	etc, state := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range []string{"8", "9"} {
		write(root+"/dev/vfio/"+group, "")
	}
	write(etc+"/gres.conf", "Name=vf Type=igb File="+root+"/dev/vfio/[8-9]\n")
	const first, second = "0000:41:10.0", "0000:41:10.2"
	lease := func(id, index int) ([]string, []string, error) {
		job := fmt.Sprintf("%d.n1", id)
		if err := os.MkdirAll(filepath.Join(state, job), 0o755); err != nil {
			t.Fatal(err)
		}
		return Lease(context.Background(), LeaseRequest{Root: root, Conf: etc, Detail: fmt.Sprintf("vf:igb:1(IDX:%d)", index), Job: job, State: state,
			Node: "n1", UID: 7000 + id, GID: 7000})
	}
	end := func(id int) error {
		os.RemoveAll(filepath.Join(state, fmt.Sprintf("%d.n1", id)))
		return Return(root, fmt.Sprintf("%d.n1", id), state)
	}
	var held *device.HeldError

	f, err := os.Open(root + "/dev/vfio/8")
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sleep", "600")
	holder.Stdin = f
	if err := errors.Join(holder.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() { holder.Process.Kill(); holder.Wait() }()

	// The first VF is held, so that the job gets the second.
	leased, notes, err := lease(1, 0)
	if err != nil || fmt.Sprint(leased) != "["+second+"]" || len(notes) != 1 ||
		!strings.Contains(notes[0], "device "+first+" is in use by sleep (process ") || !strings.HasSuffix(notes[0], "job 1.n1 has "+second+" instead") {
		t.Fatalf("%v, %q, %v", leased, notes, err)
	}
	// Slurm assigns the second to the next job, but the first job still has it.
	if leased, _, err := lease(2, 1); !errors.As(err, &held) || !strings.HasPrefix(held.Holder, "job 1.n1") {
		t.Errorf("%v, %v", leased, err)
	}
	if st, err := device.Open(root, 0); err != nil {
		t.Fatal(err)
	} else if list, err := st.List(true); err != nil {
		t.Fatal(err)
	} else {
		for _, f := range list {
			if f.Address == second && f.Owner != "7001" {
				t.Errorf("the first job's VF: %+v", f)
			}
		}
	}
	if err := errors.Join(end(2), end(1)); err != nil {
		t.Error(err)
	}
	// Another Slurm on this host returns only its own leases.
	if _, _, err := lease(5, 1); err != nil {
		t.Error(err)
	}
	if err := Return(root, "", t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := Return(root, "5.n1", t.TempDir()); err != nil {
		t.Error(err)
	}
	if leased, _, err := lease(6, 1); !errors.As(err, &held) {
		t.Errorf("another Slurm's end took a VF: %v, %v", leased, err)
	}
	if err := errors.Join(end(5), end(6)); err != nil {
		t.Error(err)
	}
	// If Slurm restricts jobs to their own devices, there is no substitute.
	write(etc+"/cgroup.conf", "ConstrainDevices=yes\n")
	if leased, _, err := lease(3, 0); !errors.As(err, &held) || held.Address != first {
		t.Errorf("%v, %v", leased, err)
	}
	if err := end(3); err != nil {
		t.Error(err)
	}
	holder.Process.Kill()
	holder.Wait()
	if leased, notes, err := lease(4, 0); err != nil || fmt.Sprint(leased) != "["+first+"]" || len(notes) != 0 {
		t.Errorf("%v, %q, %v", leased, notes, err)
	}
	if err := end(4); err != nil {
		t.Error(err)
	}
}
