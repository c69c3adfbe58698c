// Package e2e runs nearmetal as a user does: the real program, real VMs (under TCG where
// there is no KVM), real MPI libraries. `make e2e` builds what it needs first.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bound is how long a single step may take before a test fails: TCG on a busy machine
// is ten times slower than on a quiet one.
const bound = 4 * time.Minute

var (
	nearmetal string // the program
	kernels   string // the directory of build/c/kernels, which are built with Open MPI; kernel builds others
	top       string // a directory of ours, which every user may look for a path in
	runtime   string // $NEARMETAL_RUNTIME_DIR of all tests but those of other users
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		root, err := filepath.Abs("../..")
		if err != nil {
			panic(err)
		}
		nearmetal = filepath.Join(root, "build", "nearmetal")
		kernels = filepath.Join(root, "build", "c", "kernels")
		if _, err := os.Stat(nearmetal); err != nil {
			fmt.Fprintln(os.Stderr, "no build/nearmetal: run make first (make e2e does)")
			return 1
		}
		if top, err = os.MkdirTemp("/tmp", "nm-e2e-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(top)
		runtime = filepath.Join(top, "run")
		if err := errors.Join(os.Chmod(top, 0o711), os.Mkdir(runtime, 0o700)); err != nil {
			panic(err)
		}
		os.Setenv("NEARMETAL_RUNTIME_DIR", runtime)
		os.Unsetenv("NEARMETAL_CLUSTER")
		os.Setenv("NEARMETAL_ROOT_WRITES", "1") // CI runs as root
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
		go func() {
			<-stop
			endShared()
			os.RemoveAll(top)
			os.Exit(1)
		}()
		code := m.Run()
		endShared()
		left := leftovers()
		// An owner releases its lock, and down returns, a moment before its process ends.
		for end := time.Now().Add(10 * time.Second); left != "" && time.Now().Before(end); left = leftovers() {
			time.Sleep(20 * time.Millisecond)
		}
		if code == 0 && left != "" {
			fmt.Fprintln(os.Stderr, "FAIL: the tests left something behind:", left)
			code = 1
		}
		return code
	}())
}

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

// command prepares a nearmetal command in a directory of its own, so that the default
// share is not the source tree.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, nearmetal, args...)
	cmd.Cancel = func() error {
		if ctx.Err() == context.DeadlineExceeded {
			t.Logf("%v did not end within %v\n%s", args, bound, autopsy())
		}
		return cmd.Process.Signal(syscall.SIGQUIT)
	}
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = t.TempDir()
	return cmd
}

// finish runs cmd with input and returns how it ended.
func finish(t *testing.T, cmd *exec.Cmd, input string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// missing ends a test that needs something which is not here: in CI (CI=true) it fails,
// elsewhere it is skipped.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs ", what)
	}
	t.Skip("this test needs ", what)
}

// needs looks for programs of this host that a test uses.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, p)
		}
	}
}

// needsRoot is for tests that change the host, in a namespace of their own.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root")
	}
}

// within runs a shell command, and then nearmetal, in namespaces of their own ("-m" for
// mounts, "-n" for the network), as root.
func within(t *testing.T, namespace, prepare string, args ...string) *exec.Cmd {
	t.Helper()
	needsRoot(t)
	needs(t, "unshare")
	cmd := command(t, args...)
	cmd.Args = append([]string{"unshare", namespace, "sh", "-c", "set -e; " + prepare + "\nexec \"$@\"", "sh"}, cmd.Args...)
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = path
	return cmd
}

// notice matches what is said besides: how VMs run, what is shared, and what takes over two seconds.
var notice = regexp.MustCompile(`timings are not meaningful$|^nearmetal: (warning|note): |^nearmetal: [^:]*(\.\.\.|: done after [0-9.]+ s)$`)

// oneLine fails unless the user saw one line, but for notices.
func oneLine(t *testing.T, r result) {
	t.Helper()
	var lines []string
	for _, l := range strings.Split(strings.TrimSuffix(r.err, "\n"), "\n") {
		if !notice.MatchString(l) {
			lines = append(lines, l)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "nearmetal: ") || len(lines[0]) > 400 {
		t.Errorf("not one line: %q", r.err)
	}
}

// small are flags of a cluster that boots as fast as one can.
var small = []string{"--memory", "512MiB"}

// nm runs nearmetal with no input.
func nm(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...), "")
}

// want fails unless the command ended with the status and its outputs hold the words.
func (r result) want(t *testing.T, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit status %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.out+r.err, w) {
			t.Fatalf("%q is missing\nstdout: %s\nstderr: %s", w, r.out, r.err)
		}
	}
	return r
}

// up starts a cluster that ends with the test, and returns its name.
func up(t *testing.T, args ...string) string {
	t.Helper()
	r := nm(t, append([]string{"up", "--memory", "512MiB"}, args...)...).want(t, 0)
	name := strings.TrimSpace(r.out)
	t.Cleanup(func() { nm(t, "down", name) })
	return name
}

// shared is a cluster of two VMs with one vCPU each that all tests use which do not need
// one of their own; it is started by the first.
var (
	sharedOnce sync.Once
	sharedName string
	sharedErr  error
)

func shared(t *testing.T) string {
	t.Helper()
	sharedOnce.Do(func() {
		cmd := exec.Command(nearmetal, "up", "--vms", "2", "--memory", "1GiB", "--name", "shared", "--no-share")
		out, err := cmd.CombinedOutput()
		if err != nil {
			sharedErr = fmt.Errorf("%v: %s", err, out)
			return
		}
		sharedName = "shared"
	})
	if sharedErr != nil {
		t.Fatal("the shared cluster: ", sharedErr)
	}
	return sharedName
}

func endShared() {
	if sharedName != "" {
		exec.Command(nearmetal, "down", sharedName).Run()
	}
}

// leftovers says what of our clusters is still there: directories, processes, interfaces,
// files in /dev/shm. Empty: nothing.
func leftovers() string {
	var left []string
	runtimes, _ := filepath.Glob(filepath.Join(top, "run*"))
	for _, r := range runtimes {
		entries, _ := os.ReadDir(r)
		for _, e := range entries {
			if e.IsDir() {
				left = append(left, "directory "+filepath.Join(r, e.Name()))
			}
		}
	}
	for _, pid := range ours() {
		cmdline, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		left = append(left, "process "+pid+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		if strings.HasPrefix(i.Name, "nm-") {
			left = append(left, "interface "+i.Name)
		}
	}
	// Regions, where they need a name for a moment: it ends in 32 hexadecimal digits.
	shm, _ := filepath.Glob("/dev/shm/nearmetal-" + strings.Repeat("[0-9a-f]", 32))
	left = append(left, shm...)
	sort.Strings(left)
	return strings.Join(left, "; ")
}

// ours are the processes that were started with a runtime directory of ours, this one not.
func ours() []string {
	var pids []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid := filepath.Base(d)
		if pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err == nil && bytes.Contains(env, []byte("NEARMETAL_RUNTIME_DIR="+runtime)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// until waits for a condition that no event announces, polling every 20 ms.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("%s: not after %v", what, bound)
}

// reader collects what a running command writes and lets a test wait for words in it.
type reader struct {
	mu  sync.Mutex
	buf bytes.Buffer
	new chan struct{}
}

func newReader() *reader { return &reader{new: make(chan struct{}, 1)} }

func (r *reader) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.new <- struct{}{}:
	default:
	}
	return r.buf.Write(b)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// await waits until the words have been written.
func (r *reader) await(t *testing.T, words string) {
	t.Helper()
	timeout := time.After(bound)
	for !strings.Contains(r.String(), words) {
		select {
		case <-r.new:
		case <-timeout:
			t.Fatalf("%q did not come; what came: %s", words, r.String())
		}
	}
}

var _ io.Writer = (*reader)(nil)
