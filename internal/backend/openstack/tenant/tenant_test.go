package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/backend/openstack/tenant/cloudtest"
	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/job"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
)

// patience bounds a wait on a busy machine; on an idle one the waits are milliseconds.
const patience = time.Minute

const on = "openstack:test?flavor=hpc.2&image=rocky&network=private"

func quick() {
	buildPause, watchPause, dialPause, goneWait = 10*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
	grace = 0
}

func newLab(t *testing.T) *cloudtest.Cloud {
	t.Helper()
	if _, err := image.Agent(); os.Getuid() != 0 || err != nil {
		if os.Getenv("CI") != "" && os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Skip("needs root, and the agent: run make")
	}
	quick()
	dir, err := os.MkdirTemp("", "nm-os") // short, because a control socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	t.Setenv("NEARMETAL_CLUSTER", "")
	return cloudtest.New(t)
}

func clusterFile(name string, n int) *spec.Cluster {
	c := &spec.Cluster{Name: "demo", Backend: name, Root: spec.RootBackend, VMs: []spec.Group{{Name: "vm", Count: n, VCPUs: 1, Memory: 256 << 20}}}
	spec.Defaults(c)
	return c
}

func up(t *testing.T, name string, n int) (*cluster.Cluster, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return cluster.Up(ctx, cluster.Start{Spec: clusterFile(name, n)}, cluster.Events{})
}

// TestLife: a cluster's life: created with a tenant's rights, reached over TLS, paused, and removed completely.
func TestLife(t *testing.T) {
	c := newLab(t)
	u, err := up(t, on+"&group=affinity&vnic=direct", 2)
	if err != nil {
		t.Fatal(err)
	}
	if r := u.Record(); r.Running() != 2 || !strings.HasPrefix(r.Backend, "openstack:test") {
		t.Errorf("%+v", r)
	}
	// The agents, which are processes of this host here, report how instructions run.
	if i := u.Record(); i.Accel == "" && inVM(t) {
		t.Errorf("accel: %+v", i)
	}
	if g := c.One("os-server-groups"); g["policy"] != "affinity" {
		t.Errorf("server group: %v", g)
	}
	if g := c.One("security-groups"); len(g["rules"].([]any)) != 2 {
		t.Errorf("security group: %v", g)
	}
	for _, s := range c.All("servers") {
		if !strings.HasPrefix(s["name"].(string), "demo-vm") || s["hints"] == nil || s["metadata"].(map[string]any)["nearmetal"] == "" || s["flavorRef"] != "f1" || s["imageRef"] != "i1" {
			t.Errorf("server: %v", s)
		}
	}
	for _, p := range c.All("ports") {
		if p["binding:vnic_type"] != "direct" || len(p["security_groups"].([]any)) != 1 {
			t.Errorf("port: %v", p)
		}
	}
	if dir, err := os.ReadFile(filepath.Join(os.Getenv("NEARMETAL_RUNTIME_DIR"), "demo", "console-vm0.log")); err != nil || !strings.Contains(string(dir), "its agent answers") {
		t.Errorf("log: %v, %q", err, dir)
	}
	out := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	code, err := job.Exec(job.ExecOptions{Cluster: "demo", VM: "vm1", Args: []string{"/bin/echo", "hello"}}, session.Streams{Out: f, Err: os.Stderr})
	f.Close()
	if text, _ := os.ReadFile(out); err != nil || code != 0 || string(text) != "hello\n" {
		t.Errorf("exec: %d, %v, %q", code, err, text)
	}
	_, err = up(t, on, 1)
	if err == nil {
		t.Error("a second cluster of that name")
	}
	if err := u.Down(context.Background()); err != nil {
		t.Error(err)
	}
	if left := c.Left(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestNoSecurityGroup: if a cloud's networks have no security groups, or the options select none, no security group
// is requested.
func TestNoSecurityGroup(t *testing.T) {
	for _, open := range []bool{true, false} {
		c := newLab(t)
		c.Open = open
		c.Refuse["POST security-groups"], c.Refuse["GET security-groups"] = 404, 404
		u, err := up(t, on+"&security=none", 1)
		if err != nil {
			t.Fatal(err)
		}
		if p := c.One("ports"); p["security_groups"] != nil {
			t.Errorf("port: %v", p)
		}
		if err := u.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left := c.Left(); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestNoExtensions: a cloud that does not list its Neutron's extensions is not rejected.
func TestNoExtensions(t *testing.T) {
	c := newLab(t)
	c.Refuse["GET extensions"] = 403
	u, err := up(t, on, 1)
	if err != nil {
		t.Fatal(err)
	}
	c.One("security-groups")
	if err := u.Down(context.Background()); err != nil {
		t.Error(err)
	}
}

// inVM reports whether this host is a VM itself.
func inVM(t *testing.T) bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), " hypervisor ")
}

// TestRefused: an impossible request is one clear line, and nothing is left.
func TestRefused(t *testing.T) {
	for _, x := range []struct {
		name, on, want string
		wrong          func(*cloudtest.Cloud)
	}{
		{"cloud", strings.Replace(on, "test", "other", 1), "clouds.yaml", nil},
		{"no flavor", "openstack:test?image=rocky&network=private", "no flavor is named", nil},
		{"flavor", strings.Replace(on, "hpc.2", "hpc.3", 1), `shows no flavor "hpc.3"`, nil},
		{"network", strings.Replace(on, "private", "public", 1), `shows no network "public"`, nil},
		{"quota", on, "quota: 4 vCPUs are needed, and 1 of 4 are in use", func(c *cloudtest.Cloud) { c.Quota = 4 }},
		{"virtio", on, "hw_disk_bus=ide", func(c *cloudtest.Cloud) { c.Image = map[string]any{"hw_disk_bus": "ide"} }},
		{"server group", on, "this project may make no server group (OpenStack: policy soft-affinity: 403: Policy doesn't allow it to be performed.): say group=none", func(c *cloudtest.Cloud) { c.Refuse["POST os-server-groups"] = 403 }},
		{"server groups", on, "quota: all of its 2 server groups are in use: say group=none", func(c *cloudtest.Cloud) { c.Groups = 2 }},
		{"server group's members", on, "a server group has 1 servers at most, and 2 are needed: say group=none", func(c *cloudtest.Cloud) { c.Members = 1 }},
		{"no security groups", on, "have no security groups, so all who are in the VMs' network reach all of their ports: say security=none", func(c *cloudtest.Cloud) { c.Open = true }},
		{"port", on, "403: Policy doesn't allow", func(c *cloudtest.Cloud) { c.Refuse["POST ports"] = 403 }},
		{"fault", on, "No valid host was found", func(c *cloudtest.Cloud) { c.Fault = "No valid host was found. There are not enough hosts available." }},
		{"server", on, "400: Policy", func(c *cloudtest.Cloud) { c.Refuse["POST servers"] = 400 }},
		{"words", "openstack:test?flavor=a&flavour=b", "is not known", nil},
		{"twice", "openstack:test?flavor=a&flavor=b", "twice", nil},
		{"policy", on + "&group=close", "none of affinity", nil},
		{"security", on + "&security=all", "neither own nor none", nil},
		{"security and from", on + "&security=none&from=10.0.0.0/8", "needs a security group", nil},
		{"from", on + "&from=here", "not an IPv4 network", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newLab(t)
			if x.wrong != nil {
				x.wrong(c)
			}
			u, err := up(t, x.on, 2)
			if err == nil {
				u.Down(context.Background())
				t.Fatal("it is up")
			}
			if !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v\nwant %s", err, x.want)
			}
			if left := c.Left(); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestNoRegion: if a flavor promises a region and its host has no hook, a line is printed.
func TestNoRegion(t *testing.T) {
	c := newLab(t)
	c.Region = "64MiB"
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var lines []string
	u, err := cluster.Up(ctx, cluster.Start{Spec: clusterFile(on, 1)}, cluster.Events{Notice: func(line string) { lines = append(lines, line) }})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Down(context.Background())
	const want = "region in the guest: planned ivshmem, 64 MiB, found no ivshmem device: flavor hpc.2 promises it, and its host's hook did not plug it"
	if !strings.Contains(strings.Join(lines, "\n"), want) {
		t.Errorf("%q is missing in %q", want, lines)
	}
	if r := u.Record(); r.Promised != 64<<20 {
		t.Errorf("promised: %d", r.Promised)
	}
}

// TestRetry: calls to a busy cloud are repeated, and a cloud that answers 500 to a call that it carried out leaves
// nothing.
func TestRetry(t *testing.T) {
	c := newLab(t)
	for _, key := range []string{"POST servers", "POST ports", "POST os-server-groups", "POST security-groups"} {
		c.Once[key] = []int{429, 503}
	}
	for _, key := range []string{"GET servers", "GET flavors", "DELETE servers", "DELETE ports"} {
		c.Once[key] = []int{500, 502, 503, 429}
	}
	u, err := up(t, on, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Down(context.Background()); err != nil {
		t.Error(err)
	}
	if left := c.Left(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	for _, key := range []string{"POST servers", "POST ports", "POST os-server-groups", "POST security-groups"} {
		c.Lose = key
		if u, err := up(t, on, 2); err == nil {
			u.Down(context.Background())
			t.Errorf("%s answered 500, and the cluster is up", key)
		}
		if left := c.Left(); len(left) != 0 {
			t.Errorf("%s: left: %q", key, left)
		}
	}
	c.Once["GET flavors"] = many(503, 2*retryMost)
	if _, err := up(t, on, 1); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
}

// TestSilent: a call that a cloud does not answer is repeated if that does no harm. Otherwise the cluster fails to
// start, and objects created without an answer are removed.
func TestSilent(t *testing.T) {
	c := newLab(t)
	defer func(d time.Duration) { callTime = d }(callTime)
	callTime = 3 * time.Second // must be sufficient for calls that are answered
	for _, key := range []string{"GET images", "DELETE servers"} {
		c.Silent = key
		u, err := up(t, on, 2)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if err := u.Down(context.Background()); err != nil || c.Silent != "" {
			t.Errorf("%s: %v, %q", key, err, c.Silent)
		}
		if left := c.Left(); len(left) != 0 {
			t.Errorf("%s: left: %q", key, left)
		}
	}
	for _, key := range []string{"POST servers", "POST ports"} {
		c.Silent = key
		u, err := up(t, on, 2)
		if err == nil {
			u.Down(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "no answer within 3s") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", key, err)
		}
		if left := c.Left(); len(left) != 0 {
			t.Errorf("%s: left: %q", key, left)
		}
	}
}

// TestLateAnswer: an object that the cloud creates only after its creator has stopped waiting is found and deleted.
func TestLateAnswer(t *testing.T) {
	for _, key := range []string{"POST servers", "POST ports", "POST security-groups", "POST os-server-groups"} {
		c := newLab(t)
		grace = time.Minute
		defer func(d time.Duration) { callTime = d }(callTime)
		callTime = 3 * time.Second // must be sufficient for calls that are answered
		c.Late = key
		u, err := up(t, on, 2)
		if err == nil {
			u.Down(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "no answer within 3s") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", key, err)
		}
		c.Quiet()
		if left := c.Left(); len(left) != 0 {
			t.Errorf("%s: left: %q", key, left)
		}
	}
}

const envVictim = "NEARMETAL_TEST_TENANT"

func TestMain(m *testing.M) {
	vms, _ := strconv.Atoi(os.Getenv(envVictim))
	if vms == 0 {
		os.Exit(m.Run())
	}
	quick()
	u, err := cluster.Up(context.Background(), cluster.Start{Spec: clusterFile(on, vms)}, cluster.Events{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if err := u.Down(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	os.Exit(0)
}

// TestKilled kills the owner at each call that changes something, before and after it is carried out. The next
// command finds all objects by the journal.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("short: dozens of clusters")
	}
	for n, ended := 1, false; !ended; n++ {
		for _, after := range []bool{false, true} {
			if after != (n%2 == 0) && os.Getenv("NEARMETAL_SOAK") == "" && !ended {
				continue // make soak's variable selects the other half
			}
			t.Run(fmt.Sprint(n, after), func(t *testing.T) { ended = killed(t, n, after) })
		}
		if ended && n < 10 {
			t.Errorf("only %d calls", n)
		}
	}
}

// killed runs an owner that is killed at call n, before or after it is carried out, and undoes its remains. It
// reports whether the owner made fewer calls.
func killed(t *testing.T, n int, after bool) (ended bool) {
	c := newLab(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envVictim+"=2")
	c.OnChange = func(k int, done bool) {
		if k == n && done == after && cmd.Process != nil {
			cmd.Process.Kill()
		}
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	err := cmd.Run()
	ended = err == nil
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
		t.Fatalf("%v: %s", err, errs.String())
	}
	c.Quiet()
	if _, err := state.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left := c.Left(); len(left) != 0 {
		t.Fatalf("left: %q", left)
	}
	return ended
}

// TestLate: a server that the cloud creates only after its owner was killed is also found.
func TestLate(t *testing.T) {
	c := newLab(t)
	grace = time.Minute
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envVictim+"=1")
	swept := make(chan struct{})
	c.OnChange = func(k int, done bool) {
		if k == 5 && !done { // call 5 creates the server, after a security group, two rules and a port
			cmd.Process.Kill()
			<-swept
		}
	}
	cmd.Run()
	go func() {
		// By then the search has found nothing, and continues.
		for c.Searches("servers") == 0 {
			time.Sleep(time.Millisecond)
		}
		close(swept)
	}()
	if _, err := state.Sweep(); err != nil {
		t.Fatal(err)
	}
	c.Quiet()
	if left := c.Left(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// many returns a list of n times a status.
func many(status, n int) (list []int) {
	for range n {
		list = append(list, status)
	}
	return list
}
