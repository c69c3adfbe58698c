package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWritten(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the list is made as root")
	}
	upper := t.TempDir()
	ctx := context.Background()
	put := func(names ...string) {
		t.Helper()
		for _, name := range names {
			p := filepath.Join(upper, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("root/result.dat", "opt/a b\nc", "etc/hosts", "etc/fstab", "tmp/x", "var/tmp/x", "var/log/x", "var/lib/x",
		"run/nearmetal/x", "dev/x", "home/u/.cache/x", "home/u/.bash_history", "home/u/tmp/x")
	os.Symlink("result.dat", filepath.Join(upper, "root/link"))
	os.Symlink("/", filepath.Join(upper, "root/dir")) // listed, not followed
	unix.Mkfifo(filepath.Join(upper, "root/fifo"), 0o600)
	unix.Mknod(filepath.Join(upper, "root/whiteout"), unix.S_IFCHR, 0) // a file that was removed
	a := startAgent(t, "vm0", AgentOptions{}, "--upper", upper)
	files, more, err := a.Written(ctx, "", 0)
	slices.Sort(files)
	want := []string{"/etc/fstab", "/home/u/tmp/x", "/opt/a b\nc", "/root/dir", "/root/link", "/root/result.dat", "/var/lib/x"}
	if err != nil || more || !slices.Equal(files, want) {
		t.Errorf("%q, %v, %v\nwant %q", files, more, err, want)
	}

	// All files are from the last hour, none from the last ms.
	if files, _, err := a.Written(ctx, "", time.Hour); err != nil || len(files) != len(want) {
		t.Errorf("%q, %v", files, err)
	}
	for {
		files, _, err := a.Written(ctx, "", time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			break
		}
	}
	put("root/new")
	if files, _, err := a.Written(ctx, "", time.Hour); err != nil || !slices.Contains(files, "/root/new") {
		t.Errorf("%q, %v", files, err)
	}

	// A program's status reports that it wrote no file, but not if it did.
	status := func(program string) Status {
		t.Helper()
		p, err := a.Start(Exec{Args: []string{"/bin/sh", "-c", program}, NoStdin: true, AskWritten: true})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		go io.Copy(io.Discard, p.Stderr)
		io.Copy(io.Discard, p.Stdout)
		st, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for !status(":").NothingWritten { // the last file was written in this tick of the kernel's clock
	}
	for program, none := range map[string]bool{
		"exit 3": true, "echo > " + upper + "/tmp/x": true, "kill -9 $$": true, "mkdir " + upper + "/opt/dir": true,
		"echo > " + upper + "/root/new": false, "(sleep 0.1; echo > " + upper + "/root/new) &": false,
	} {
		if st := status(program); st.NothingWritten != none {
			t.Errorf("%s: %+v; want NothingWritten %v", program, st, none)
		}
		for !status(":").NothingWritten {
		}
	}
	if st := status("exit 3"); st.Code != 3 {
		t.Errorf("%+v", st)
	}

	// The report is bounded for many files and a deep tree.
	deep := strings.Repeat("d/", 200)
	put("deep/" + deep + "x")
	for i := range 2100 {
		put(fmt.Sprintf("many/%d", i))
	}
	files, more, err = a.Written(ctx, "", 0)
	if err != nil || !more || len(files) != 1000 {
		t.Errorf("%d files, more %v, %v", len(files), more, err)
	}

	if st := status(":"); st.NothingWritten {
		t.Error("more files than the agent looks at, and it says that none was written")
	}

	if _, _, err := startAgent(t, "vm0", AgentOptions{}).Written(ctx, "", 0); err == nil {
		t.Error("an agent without an overlay has a list")
	}
}
