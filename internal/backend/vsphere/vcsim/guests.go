package vcsim

import (
	_ "embed"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Guests of the simulator. A VM whose advanced settings have RUN.container is run by a program that the simulator knows as docker. Here
// that is a script: a guest is a process of this machine in namespaces of its own, with files of its own in /run, /root and /etc/ssh,
// and an ssh server. VMware Tools run in it, files are copied and programs are started by vCenter's calls, and it has an address:
// that of vm0 is 127.7.0.1.

//go:embed docker.sh
var dockerText string

//go:embed guest.sh
var guestText string

// GuestLogin is the user and the password of guests.
const GuestLogin = "root:guest-pass-word"

// GuestSubnet is that of guests' addresses.
const GuestSubnet = "127.7.0.0/24"

// GuestsWork says why this machine cannot have guests; nil: it can.
func GuestsWork() error {
	if os.Getuid() != 0 {
		return errors.New("guests need root")
	}
	for _, p := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen", "unshare", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.7.0.250:22")
	if err != nil {
		return err
	}
	return l.Close()
}

// guests puts the script into PATH, and has all guests end with the test. It returns the folder with a folder for each.
func guests(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	text := strings.NewReplacer("GUESTS", dir+"/guests", "HERE", dir).Replace(dockerText)
	for name, text := range map[string]string{"docker": text, "guest.sh": guestText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/guests", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		list, _ := os.ReadDir(dir + "/guests")
		for _, e := range list {
			exec.Command(dir+"/docker", "rm", "-v", "-f", e.Name()).Run()
		}
	})
	return dir + "/guests"
}
