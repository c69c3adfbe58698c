package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

type cpioEntry struct {
	mode, major, minor uint32
	data               []byte
}

// readCpio reads consecutive newc archives, as the kernel does.
func readCpio(t *testing.T, b []byte) map[string]cpioEntry {
	t.Helper()
	out := map[string]cpioEntry{}
	for at := 0; at < len(b); {
		if at%4 != 0 || len(b)-at < 110 || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		field := func(i int) uint32 {
			n, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return uint32(n)
		}
		nameLen, size := int(field(11)), int(field(6))
		name := string(b[at+110 : at+110+nameLen-1])
		data := (at + 110 + nameLen + 3) &^ 3
		if name != "TRAILER!!!" {
			out[name] = cpioEntry{field(1), field(9), field(10), b[data : data+size]}
		}
		at = (data + size + 3) &^ 3
	}
	return out
}

// TestCpioTool reads the output with cpio(1), as an independent reader.
func TestCpioTool(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no cpio(1) on this machine")
	}
	var out bytes.Buffer
	c := newCpio(&out)
	c.file("a/b/c", 0o640, []byte("hello"))
	c.file("a/d", 0o755, bytes.Repeat([]byte{1}, 4097))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("cpio", "-idm", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &out
	if msg, err := cmd.CombinedOutput(); err != nil || len(msg) > 0 {
		t.Fatalf("cpio: %v %s", err, msg)
	}
	b, err := os.ReadFile(filepath.Join(dir, "a/b/c"))
	st, err2 := os.Stat(filepath.Join(dir, "a/b/c"))
	if err != nil || err2 != nil || string(b) != "hello" || st.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v", b, st, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "a/d")); err != nil || st.Size() != 4097 {
		t.Errorf("%v, %v", st, err)
	}
}

func FuzzCpioNames(f *testing.F) {
	for _, n := range []string{"a", "a/b", "", "/", "..", "a/../b", "a//b", "a\x00b", strings.Repeat("x/", 3000), "TRAILER!!!"} {
		f.Add(n, []byte("data"))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		var out bytes.Buffer
		c := newCpio(&out)
		c.file(name, 0o644, data)
		if err := c.close(); err != nil {
			if out.Len() > 0 && !strings.HasPrefix(out.String(), "070701") {
				t.Fatal("an error after half an entry")
			}
			return
		}
		if !fs.ValidPath(name) {
			t.Fatalf("%q was taken", name)
		}
		if out.Len()%4 != 0 {
			t.Fatalf("%d bytes", out.Len())
		}
		if name == "TRAILER!!!" {
			return
		}
		e, ok := readCpio(t, out.Bytes())[name]
		if !ok || !bytes.Equal(e.data, data) {
			t.Fatalf("%q: %s", name, fmt.Sprint(ok))
		}
	})
}
