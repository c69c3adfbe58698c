package hugepage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal/faultdisk"
	"nearmetal/test/hosttree"
)

// helper marks the test's program as the one that is killed: OPERATION ROOT STEP.
const helper = "NEARMETAL_TEST_PAGES"

func TestMain(m *testing.M) {
	words := strings.Fields(os.Getenv(helper))
	if len(words) != 3 {
		hosttree.InMemory()
		os.Exit(m.Run())
	}
	left, _ := strconv.Atoi(words[2])
	change.OnStep(func() {
		if left--; left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	if err := operate(words[0], words[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// state is the directory of the jobs' directories: one that exists for both the test and the killed program.
const state = "/proc/self"

var one, two = Job{"fd", state}, Job{"task", state}

func operate(op, root string) error {
	if op == "keep" {
		return Keep(root, two, []Need{{0, 2 << 20, 5}, {1, 2 << 20, 7}})
	}
	_, err := Return(root, two)
	return err
}

// host returns a tree with two nodes with pages, some of them free.
func host(t *testing.T, pages, free int) string {
	t.Helper()
	root := t.TempDir()
	for node := 0; node < 2; node++ {
		dir := filepath.Join(root, fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-2048kB", node))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		set(t, dir+"/nr_hugepages", pages)
		set(t, dir+"/free_hugepages", free)
		set(t, dir+"/surplus_hugepages", 0)
	}
	return root
}

func set(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strconv.Itoa(n)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func nr(root string, node int) string {
	return fmt.Sprintf("%s/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages", root, node)
}

func counts(t *testing.T, root string) string {
	t.Helper()
	var list []string
	for node := 0; node < 2; node++ {
		text, err := os.ReadFile(nr(root, node))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(string(text)))
	}
	return strings.Join(list, " ")
}

func is(t *testing.T, root, want string) {
	t.Helper()
	if got := counts(t, root); got != want {
		t.Errorf("pages of the nodes: %s, want %s", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// back returns a job's pages.
func back(t *testing.T, root string, job Job) {
	t.Helper()
	if _, err := Return(root, job); err != nil {
		t.Fatal(err)
	}
}

// TestJobs: jobs come and go in any order, and the administrator changes the pages in the meantime: the
// administrator's remain.
func TestJobs(t *testing.T) {
	root := host(t, 10, 4)
	must(t, Keep(root, one, []Need{{0, 2 << 20, 6}})) // 4 of the administrator's free ones, 2 made
	is(t, root, "12 10")
	must(t, Keep(root, two, []Need{{0, 2 << 20, 3}})) // all free pages are the first job's
	is(t, root, "15 10")
	must(t, Keep(root, two, []Need{{0, 2 << 20, 4}})) // twice: the latter counts
	is(t, root, "16 10")
	back(t, root, one)
	is(t, root, "14 10")
	set(t, nr(root, 0), 34) // the administrator makes 20 more
	back(t, root, two)
	is(t, root, "30 10")
	back(t, root, two)
	is(t, root, "30 10")
	if list, err := change.List(dirOf(root)); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestSweep: after a reboot or a killed test, the pages of jobs whose directories no longer exist are returned.
func TestSweep(t *testing.T) {
	root, state := host(t, 0, 0), t.TempDir()
	must(t, os.Mkdir(filepath.Join(state, "2.n1"), 0o700))
	for _, j := range []Job{{"1.n1", state}, {"2.n1", state}} {
		must(t, Keep(root, j, []Need{{0, 2 << 20, 1}}))
	}
	is(t, root, "1 0") // the second's Keep found no directory of the first's
	must(t, Keep(root, one, []Need{{0, 2 << 20, 1}}))
	is(t, root, "2 0")
	must(t, os.Remove(filepath.Join(state, "2.n1")))
	back(t, root, Job{})
	is(t, root, "1 0")
	back(t, root, one)
	is(t, root, "0 0")
}

// TestShort: pages are returned at once if the kernel cannot make all of them.
func TestShort(t *testing.T) {
	root := host(t, 3, 0)
	change.OnStep(func() { // the kernel makes four of seven on node 1
		if counts(t, root) == "8 10" {
			set(t, nr(root, 1), 7)
		}
	})
	defer change.OnStep(func() {})
	err := operate("keep", root)
	if want := "node 1 of this host can make 4 of the 7 huge pages of 2 MiB that are missing: its memory is in use or in pieces"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	is(t, root, "3 3")
	if err := Keep(root, two, []Need{{0, 1 << 30, 1}}); err == nil || err.Error() != "node 0 of this host has no huge pages of 1 GiB" {
		t.Error(err)
	}
	for _, bad := range []string{"", "../x", "a/b", strings.Repeat("x", 100)} {
		if Keep(root, Job{bad, state}, nil) == nil {
			t.Errorf("%q names a job", bad)
		}
	}
}

// TestKill: after a kill at each step of Keep and Return, a repetition or the next job corrects the counts.
func TestKill(t *testing.T) {
	for _, op := range []string{"keep", "return"} {
		for n := 1; ; n++ {
			root := host(t, 10, 2)
			must(t, Keep(root, one, []Need{{0, 2 << 20, 3}})) // two are the administrator's
			if op == "return" {
				must(t, operate("keep", root))
				is(t, root, "16 15")
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", helper, op, root, n))
			out, err := cmd.CombinedOutput()
			if err == nil {
				if n < 5 {
					t.Errorf("%s has %d steps", op, n-1)
				}
				break
			}
			if len(out) > 0 {
				t.Fatalf("%s: %s", op, out)
			}
			at := counts(t, root)
			back(t, root, two)
			if got := counts(t, root); got != "11 10" {
				t.Errorf("%s killed at step %d, with %s: then %s, want 11 10", op, n, at, got)
			}
			back(t, root, one)
			is(t, root, "10 10")
		}
	}
}

// TestBoot: after a reboot no pages need to be returned.
func TestBoot(t *testing.T) {
	c := pool{"", "/sys/devices/system/node/node0/hugepages/hugepages-2048kB"}.change(one, 3, 2, 2)
	if err := valid(c); err != nil {
		t.Fatal(err)
	}
	c.Args["boot"] = "another"
	if did, err := undo(c); did || err != nil {
		t.Errorf("%v, %v", did, err)
	}
	for name, bad := range map[string]string{"path": "/sys/devices/system/node/node0/../x", "pages": "-1", "made": "x", "before": "", "root": "a/.."} {
		c := pool{"/r", "/sys/kernel/mm/hugepages/hugepages-2048kB"}.change(one, 3, 2, 2)
		c.Args[name] = bad
		if valid(c) == nil {
			t.Errorf("%s=%q is taken", name, bad)
		}
	}
}

// TestDiskFails: after a disk error at any operation of Keep and Return the counts are right.
func TestDiskFails(t *testing.T) {
	for _, op := range []string{"keep", "return"} {
		for n := 1; ; n++ {
			root := host(t, 10, 2)
			must(t, Keep(root, one, []Need{{0, 2 << 20, 3}}))
			if op == "return" {
				must(t, operate("keep", root))
			}
			stop := faultdisk.FailAt(n)
			err := operate(op, root)
			if !stop() {
				break
			}
			at := counts(t, root)
			back(t, root, two)
			if got := counts(t, root); got != "11 10" {
				t.Errorf("%s, operation %d failing (%v), with %s: then %s, want 11 10", op, n, err, at, got)
			}
			back(t, root, one)
			is(t, root, "10 10")
		}
	}
}

// TestKillThenOthers: a Return that is killed at any step is finished by the next operation, also another job's, and
// later changes of the pages by the administrator or another job stay.
func TestKillThenOthers(t *testing.T) {
	for n := 1; ; n++ {
		root := host(t, 10, 2)
		must(t, operate("keep", root))
		is(t, root, "13 15") // two of each node were free
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=return %s %d", helper, root, n))
		if out, err := cmd.CombinedOutput(); err == nil {
			break
		} else if len(out) > 0 {
			t.Fatalf("%s", out)
		}
		at := counts(t, root)
		// The job's directory exists, and nobody returns its pages a second time.
		must(t, Keep(root, one, []Need{{1, 2 << 20, 4}}))
		if got := counts(t, root); got != "13 19" && got != "10 12" {
			t.Errorf("killed at step %d, with %s, and another job: %s", n, at, got)
		}
		back(t, root, two)
		back(t, root, one)
		if got := counts(t, root); got != "10 10" {
			t.Errorf("killed at step %d, with %s: in the end %s, want 10 10", n, at, got)
		}
	}
}

// TestStaleCounts: a count that the administrator sets between a kill and the next command is not changed.
func TestStaleCounts(t *testing.T) {
	for n := 1; ; n++ {
		root := host(t, 10, 2)
		must(t, operate("keep", root))
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=return %s %d", helper, root, n))
		if _, err := cmd.CombinedOutput(); err == nil {
			break
		}
		set(t, nr(root, 0), 500)
		back(t, root, two)
		if got := strings.Fields(counts(t, root))[0]; got != "500" && got != "497" {
			t.Errorf("killed at step %d: the administrator's 500 pages are %s", n, got)
		}
	}
}

// TestBadJournal: a job's unreadable journal does not keep others from their pages, and no pages are assigned that
// may be that job's.
func TestBadJournal(t *testing.T) {
	root := host(t, 10, 6)
	must(t, Keep(root, one, []Need{{0, 2 << 20, 6}})) // all free pages
	is(t, root, "10 10")
	files, _ := filepath.Glob(dirOf(root) + "/*.done")
	if len(files) != 1 {
		t.Fatal(files)
	}
	must(t, os.WriteFile(files[0], []byte("?\n"), 0o600))
	must(t, Keep(root, two, []Need{{0, 2 << 20, 2}}))
	is(t, root, "12 10")
	back(t, root, two)
	is(t, root, "10 10")
	if _, err := Return(root, one); err == nil || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("what cannot be given back: %v", err)
	}
}
