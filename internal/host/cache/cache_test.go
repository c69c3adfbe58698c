package cache

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func at(t *testing.T) *Dir {
	t.Helper()
	d, err := At(filepath.Join(t.TempDir(), "c"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t *testing.T, d *Dir, name string, data []byte) {
	t.Helper()
	f, err := d.Put(name, data)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestRoundTrip(t *testing.T) {
	d := at(t)
	if _, _, err := d.Open("k-1"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no entry: %v", err)
	}
	for _, n := range []int{0, 1, 7, 8, 9, 1<<20 + 3} {
		data := bytes.Repeat([]byte{0xc3}, n)
		put(t, d, "k-1", data)
		f, size, err := d.Open("k-1")
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		got, _ := io.ReadAll(io.LimitReader(f, size))
		f.Close()
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d", n, len(got))
		}
	}
}

// TestCorrupt damages every part of an entry: each damage is detected, and the entry is then removed.
func TestCorrupt(t *testing.T) {
	d := at(t)
	data := []byte("the quick brown fox jumps")
	p := filepath.Join(d.Path(), "k-1")
	put(t, d, "k-1", data)
	whole, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.Open("k-1"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the entry is still there", what)
		}
	}
	for i := range whole {
		if i >= len(data) && i < len(whole)-trailerSize {
			continue // padding is not verified
		}
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		check("a bit of byte "+string(rune('0'+i)), b)
	}
	for n := range whole {
		check("cut", whole[:n])
	}
	check("longer", append(bytes.Clone(whole), 0, 0, 0, 0, 0, 0, 0, 0))
}

func TestTwoWriters(t *testing.T) {
	d := at(t)
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			for j := 0; j < 20; j++ {
				f, err := d.Put("k-1", bytes.Repeat([]byte{byte(i)}, 5000+i))
				if err != nil {
					t.Error(err)
					return
				}
				f.Close()
				f, n, err := d.Open("k-1")
				if err != nil {
					t.Error(err)
					return
				}
				b := make([]byte, n)
				f.ReadAt(b, 0)
				f.Close()
				if int(n) != 5000+int(b[0]) || !bytes.Equal(b, bytes.Repeat(b[:1], int(n))) {
					t.Errorf("a mixture of two writers' data")
				}
			}
		}(i)
	}
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(d.Path(), tmpPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTrim(t *testing.T) {
	d := at(t)
	old := time.Now().Add(-2 * tmpAge)
	for i, name := range []string{"a-1", "a-2", "a-3", "b-1", "other", tmpPrefix + "dead", tmpPrefix + "live"} {
		put2 := filepath.Join(d.Path(), name)
		if err := os.WriteFile(put2, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		when := old.Add(time.Duration(i) * time.Minute)
		if strings.HasSuffix(name, "live") {
			when = time.Now()
		}
		os.Chtimes(put2, when, when)
	}
	d.Trim(map[string]int{"a": 1, "b": 1})
	list, _ := os.ReadDir(d.Path())
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), tmpPrefix+"live a-3 b-1 other"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestPlaces(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", home)
	d, err := Open()
	if err != nil || d.Path() != filepath.Join(home, ".cache/nearmetal") {
		t.Errorf("%v, %v", d, err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "x"))
	if d, err = Open(); err != nil || d.Path() != filepath.Join(home, "x/nearmetal") {
		t.Errorf("%v, %v", d, err)
	}
	// A home that is a file is not writable, even for root.
	file := filepath.Join(home, "file")
	os.WriteFile(file, nil, 0o600)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", file)
	if d, err = Open(); err != nil || !strings.HasPrefix(d.Path(), "/var/tmp/nearmetal-") {
		t.Errorf("%v, %v", d, err)
	}
	open := filepath.Join(home, "open")
	os.Mkdir(open, 0o700)
	os.Chmod(open, 0o777)
	if _, err := At(open); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("a directory open to all: %v", err)
	}
	if os.Geteuid() == 0 {
		theirs := filepath.Join(home, "theirs")
		os.Mkdir(theirs, 0o700)
		os.Chown(theirs, 12345, 12345)
		if _, err := At(theirs); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("another's directory: %v", err)
		}
	}
	link := filepath.Join(home, "link")
	os.Symlink(home, link)
	if _, err := At(link); err == nil {
		t.Error("a symbolic link: no error")
	}
}

// TestSpoilt: an entry with the right bytes that another user made, can change or has linked under another name is
// not used.
func TestSpoilt(t *testing.T) {
	whole := func(d *Dir) string {
		put(t, d, "k-1", []byte("a kernel"))
		return filepath.Join(d.Path(), "k-1")
	}
	attacks := map[string]func(d *Dir) error{
		"another's file":  func(d *Dir) error { return os.Chown(whole(d), 12345, 12345) },
		"open to all":     func(d *Dir) error { return os.Chmod(whole(d), 0o606) },
		"open to a group": func(d *Dir) error { return os.Chmod(whole(d), 0o620) },
		"two names":       func(d *Dir) error { return os.Link(whole(d), filepath.Join(d.Path(), "k-2")) },
		"a symbolic link": func(d *Dir) error {
			p := whole(d)
			other := filepath.Join(filepath.Dir(d.Path()), "planted")
			return errors.Join(os.Rename(p, other), os.Symlink(other, p))
		},
		"a pipe": func(d *Dir) error {
			p := whole(d)
			return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600))
		},
		// If the checksum is not a hash, another text of the same length can match it.
		"another text, its own length": func(d *Dir) error {
			p := whole(d)
			b, err := os.ReadFile(p)
			copy(b, "A KERNEL")
			return errors.Join(err, os.WriteFile(p, b, 0o600))
		},
	}
	for what, attack := range attacks {
		t.Run(what, func(t *testing.T) {
			if what == "another's file" && os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			d := at(t)
			if err := attack(d); err != nil {
				t.Fatal(err)
			}
			if f, _, err := d.Open("k-1"); !errors.Is(err, ErrCorrupt) {
				f.Close()
				t.Errorf("it was taken: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(d.Path(), "k-1")); !errors.Is(err, os.ErrNotExist) {
				t.Error("it is still there")
			}
		})
	}
}
