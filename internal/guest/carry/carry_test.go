package carry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func secret(t *testing.T) string {
	t.Helper()
	s, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSecret: both ends must know the secret. Callers that do not know it, send nothing or hang up do not block the
// owner.
func TestSecret(t *testing.T) {
	l, s := listen(t), secret(t)
	got := make(chan net.Conn, 1)
	go func() {
		c, err := Accept(context.Background(), l, s)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- c
	}()
	at := l.Addr().String()
	silent, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if gone, err := net.Dial("tcp", at); err == nil {
		gone.Close()
	}
	if c, err := Dial(context.Background(), at, secret(t)); err == nil {
		c.Close()
		t.Fatal("another secret is taken")
	}
	mine, err := Dial(context.Background(), at, s)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	theirs, ok := <-got
	if !ok {
		t.FailNow()
	}
	defer theirs.Close()
	go mine.Write([]byte("hello"))
	b := make([]byte, 5)
	if _, err := io.ReadFull(theirs, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(b); err == nil {
			t.Error("it still listens")
		}
		c.Close()
	}
}

// TestFlood: callers that send nothing do not block the owner, who comes from another address or the same one, and is
// accepted at once.
func TestFlood(t *testing.T) {
	for name, from := range map[string]string{"another address": "127.0.0.2", "the owner's own": "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			l, s := listen(t), secret(t)
			at := l.Addr().String()
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			for range 300 { // the listener gets them before the owner
				c, err := d.Dial("tcp", at)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			got := make(chan error, 1)
			go func() {
				c, err := Accept(context.Background(), l, s)
				if err == nil {
					_, err = c.Write([]byte{'!'})
					c.Close()
				}
				got <- err
			}()
			mine, err := Dial(context.Background(), at, s)
			if err != nil {
				t.Fatal(err)
			}
			defer mine.Close()
			if b, err := io.ReadAll(mine); string(b) != "!" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if err := <-got; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImpostor: a program in the VM's place that does not know the secret is not accepted.
func TestImpostor(t *testing.T) {
	l, s := listen(t), secret(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go Accept(ctx, l, secret(t))
	if c, err := Dial(context.Background(), l.Addr().String(), s); err == nil {
		c.Close()
		t.Error("an impostor is taken")
	}
}

// TestSettings: the settings are in a file until they are read, and before that in cloud-init's user data.
func TestSettings(t *testing.T) {
	s := Settings{Name: "vm0", Secret: secret(t), Listen: ":7641", Config: "version 1\nhost 10.0.0.7 vm0 vm0.demo\nhost nonsense x\nhost 10.0.0.8\n"}
	data, err := s.UserData()
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Files []struct {
			Content, Permissions string
		} `json:"write_files"`
		Run [][]string `json:"runcmd"`
	}
	text, ok := strings.CutPrefix(string(data), "#cloud-config\n")
	if err := json.Unmarshal([]byte(text), &c); err != nil || !ok || len(c.Files) != 1 || c.Files[0].Permissions != "0600" || len(c.Run) != 1 {
		t.Fatalf("%v\n%s", err, data)
	}
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte(c.Files[0].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSettings(path)
	if err != nil || *got != s {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secret's file is there: %v", err)
	}
	if h := got.Hosts(); len(h) != 1 || h[0] != "10.0.0.7\tvm0\tvm0.demo" {
		t.Errorf("%q", h)
	}
	s.Config = strings.Repeat("host 10.0.0.7 vm0\n", 4000)
	if _, err := s.UserData(); err == nil || !strings.Contains(err.Error(), "fewer VMs") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "{}", `{"secret": "00"}`, `{"secret": "` + strings.Repeat("z", 64) + `"}`} {
		os.WriteFile(path, []byte(bad), 0o600)
		if _, err := ReadSettings(path); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
