package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/guest/channel"
)

// tree describes a directory: names, types, modes, contents.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		fmt.Fprintf(&b, "%s %v", rel, st.Mode())
		switch {
		case st.Mode()&os.ModeSymlink != 0:
			l, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %s", l)
		case st.Mode().IsRegular():
			c, _ := os.ReadFile(p)
			fmt.Fprintf(&b, " %d %x %d", len(c), c[:min(8, len(c))], st.ModTime().Unix())
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func makeTree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tree")
	for _, d := range []string{"", "sub", "sub/deep er", "closed"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"a": "alpha", "sub/empty": "", "sub/deep er/b\nc": "line", "closed/x": "x"} {
		p := filepath.Join(root, name)
		if err := os.WriteFile(p, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(p, time.Unix(1e9, 0), time.Unix(1e9, 0))
	}
	os.WriteFile(filepath.Join(root, "big"), bytes.Repeat([]byte("0123456789abcdef"), 200000), 0o755)
	os.Symlink("../../outside", filepath.Join(root, "link"))
	os.Chmod(filepath.Join(root, "closed"), 0o555)
	t.Cleanup(func() { os.Chmod(filepath.Join(root, "closed"), 0o755) })
	return root
}

func TestCopy(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	ctx := context.Background()
	src := makeTree(t)
	dst := t.TempDir()
	me := Copy{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	push, pull := me, me
	push.Local, push.Remote = src, filepath.Join(dst, "pushed")
	if err := a.Push(ctx, push); err != nil {
		t.Fatal(err)
	}
	pull.Remote, pull.Local = push.Remote, filepath.Join(dst, "pulled")
	if err := a.Pull(ctx, pull); err != nil {
		t.Fatal(err)
	}
	want := tree(t, src)
	for _, p := range []string{push.Remote, pull.Local} {
		os.Chmod(filepath.Join(p, "closed"), 0o555)
		if got := tree(t, p); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", p, got, want)
		}
	}
	// The tree is copied again over the existing one, then a single file.
	os.Chmod(filepath.Join(push.Remote, "closed"), 0o755)
	if err := a.Push(ctx, push); err != nil {
		t.Error(err)
	}
	one := me
	one.Remote, one.Local = filepath.Join(src, "a"), filepath.Join(dst, "one")
	if err := a.Pull(ctx, one); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(one.Local); string(b) != "alpha" {
		t.Errorf("%q", b)
	}
}

func TestCopyErrors(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	ctx := context.Background()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, []byte("x"), 0o600)
	os.Symlink(dir, filepath.Join(dir, "self"))
	k := func(local, remote string) Copy {
		return Copy{Local: local, Remote: remote, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	}
	for _, c := range []struct {
		f    func(context.Context, Copy) error
		k    Copy
		want string
	}{
		{a.Push, k(file, "/no/such/dir/x"), "/no/such/dir: No such file or directory"},
		{a.Push, k("/no/such", dir+"/x"), "/no/such: no such file or directory"},
		{a.Push, k(file, "/"), "/: not a name that a copy can have"},
		{a.Push, k(file, dir+"/self"), "self: Too many levels of symbolic links"},
		{a.Push, k(file, "relative"), "relative: a path in the VM must be absolute"},
		{a.Push, k("/dev/null", dir+"/x"), "/dev/null: neither a file, a directory nor a symbolic link"},
		{a.Pull, k(dir+"/x", "/no/such"), "/no/such: No such file or directory"},
		{a.Pull, k("/no/such/dir/x", file), "/no/such/dir: no such file or directory"},
		{a.Pull, k(dir+"/x", "/dev/null"), "/dev/null: neither a file, a directory nor a symbolic link"},
	} {
		if err := c.f(ctx, c.k); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got %v, want %s", c.k, err, c.want)
		}
	}
	// If the VM was named, an agent's message on a path has the VM's name before the path, as a user writes it.
	there := k(dir+"/x", "/no/such")
	there.VM = "vm0"
	if err := a.Pull(ctx, there); err == nil || err.Error() != "vm0:/no/such: No such file or directory" {
		t.Errorf("%v", err)
	}
	there.Local, there.Remote = file, "/"
	if err := a.Push(ctx, there); err == nil || err.Error() != "vm0:/: not a name that a copy can have" {
		t.Errorf("%v", err)
	}
}

// records encodes records that a hostile VM might send.
func records(fields ...channel.Fields) []byte {
	var b []byte
	for _, f := range fields {
		e, _ := f.Encode()
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
		if f.Get("type") == "file" {
			b = append(b, "evil"...)
		}
	}
	return b
}

func hostileRecords(outside string) map[string][]byte {
	file := func(path string) channel.Fields {
		return channel.Fields{{Key: "type", Value: "file"}, {Key: "path", Value: path}, {Key: "mode", Value: "4777"}, {Key: "size", Value: "4"}, {Key: "mtime", Value: "0"}}
	}
	sub := func(path string) channel.Fields {
		return channel.Fields{{Key: "type", Value: "dir"}, {Key: "path", Value: path}, {Key: "mode", Value: "755"}}
	}
	dir := sub(".")
	link := channel.Fields{{Key: "type", Value: "link"}, {Key: "path", Value: "l"}, {Key: "target", Value: outside}, {Key: "mode", Value: "777"}}
	return map[string][]byte{
		"dots":            records(dir, file("../evil")),
		"dots within":     records(dir, file("a/../../evil")),
		"absolute":        records(dir, file(outside+"/evil")),
		"through a link":  records(dir, link, file("l/evil")),
		"link as the top": records(channel.Fields{{Key: "type", Value: "link"}, {Key: "path", Value: "."}, {Key: "target", Value: outside}}, file("evil")),
		"empty component": records(dir, file("a//evil")),
		"no end":          records(dir),
		"no directory":    records(dir, file("a/evil")),
		"left before":     records(dir, sub("a"), sub("b"), file("a/evil")),
		"huge record":     {0xff, 0xff, 0xff, 0x7f},
		"odd type":        records(channel.Fields{{Key: "type", Value: "device"}, {Key: "path", Value: "x"}}),
	}
}

func TestReceiveHostile(t *testing.T) {
	for name := range hostileRecords("") {
		t.Run(name, func(t *testing.T) {
			outside, in := t.TempDir(), t.TempDir()
			b := hostileRecords(outside)[name]
			if err := receiveTree(bytes.NewReader(b), filepath.Join(in, "copy")); err == nil {
				t.Error("taken")
			}
			if got := tree(t, outside); strings.Count(got, "\n") != 1 {
				t.Errorf("written outside: %s", got)
			}
			if _, err := os.Lstat(filepath.Join(in, "evil")); err == nil {
				t.Error("written beside the copy")
			}
		})
	}
}

// TestPushHostile sends the same records to the agent's receiver.
func TestPushHostile(t *testing.T) {
	a := startAgent(t, "vm0", AgentOptions{})
	ctx := context.Background()
	for name := range hostileRecords("") {
		t.Run(name, func(t *testing.T) {
			outside, in := t.TempDir(), t.TempDir()
			s, stop, err := a.openCopy(ctx, "push", Copy{Remote: filepath.Join(in, "copy"),
				UID: uint32(os.Getuid()), GID: uint32(os.Getgid())})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			s.Write(hostileRecords(outside)[name])
			s.CloseWrite(channel.LaneData)
			if err := copyStatus(ctx, s, ""); err == nil {
				t.Error("taken")
			}
			if got := tree(t, outside); strings.Count(got, "\n") != 1 {
				t.Errorf("written outside: %s", got)
			}
			if _, err := os.Lstat(filepath.Join(in, "evil")); err == nil {
				t.Error("written beside the copy")
			}
		})
	}
}

func FuzzReceiveTree(f *testing.F) {
	for _, b := range hostileRecords("/nowhere") {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := t.TempDir()
		os.Mkdir(filepath.Join(in, "box"), 0o755)
		receiveTree(bytes.NewReader(b), filepath.Join(in, "box", "copy"))
		if e, _ := os.ReadDir(in); len(e) != 1 {
			t.Fatalf("%v beside the box", e)
		}
		if e, _ := os.ReadDir(filepath.Join(in, "box")); len(e) > 1 {
			t.Fatalf("%v in the box", e)
		}
		filepath.WalkDir(in, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() { // a link would be followed
				os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}

// endless is a VM that sends a record, made from a number, for as long as the host reads.
type endless struct {
	make func(n int) channel.Fields
	each func(n int)
	n    int
	rest []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.each(e.n)
		e.rest = records(e.make(e.n))
		e.n++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// TestReceiveEndless: a VM that sends directories endlessly, new ones or the same one, with maximum records, uses no
// memory of the host for them, and is stopped.
func TestReceiveEndless(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	defer func(n int) { maxRecords = n }(maxRecords)
	maxRecords = 40000
	long := strings.Repeat("x", maxRecord-200)
	record := func(path string) channel.Fields {
		return channel.Fields{{Key: "type", Value: "dir"}, {Key: "path", Value: path}, {Key: "mode", Value: "755"},
			{Key: "mtime", Value: "0"}, {Key: "target", Value: long}}
	}
	for name, path := range map[string]func(n int) string{
		"one again and again": func(int) string { return "." },
		"two by turns":        func(n int) string { return []string{".", "a"}[n%2] },
		"new ones": func(n int) string {
			if n == 0 {
				return "."
			}
			return fmt.Sprint("d", n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			var most uint64
			before := heap()
			e := &endless{
				make: func(n int) channel.Fields { return record(path(n)) },
				each: func(n int) {
					if n%10000 == 9999 {
						most = max(most, heap())
					}
				},
			}
			err := receiveTree(e, filepath.Join(t.TempDir(), "copy"))
			if err == nil || err.Error() != "the VM sent more than 40000 files and directories" {
				t.Error(err)
			}
			if most > before+16<<20 {
				t.Errorf("%d MiB are kept of %d records", (most-before)>>20, e.n)
			}
		})
	}
}
