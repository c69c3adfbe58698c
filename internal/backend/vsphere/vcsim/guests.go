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

// Guests of the simulator. A VM whose advanced settings have RUN.container is run by a program that the simulator
// knows as docker. Here that is a script: a guest is a process of this machine in namespaces of its own, with its own
// files in /run, /root and /etc/ssh, and an ssh server. VMware Tools run in it, vCenter's calls copy files and start
// programs, and it has an address: vm0's is 127.7.0.1.

//go:embed docker.sh
var dockerText string

//go:embed guest.sh
var guestText string

// GuestLogin is the user and the password of guests.
const GuestLogin = "root:guest-pass-word"

// GuestSubnet is the subnet of guests' addresses.
const GuestSubnet = "127.7.0.0/24"

// GuestsWork returns the reason why this machine cannot run guests, or nil.
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

// TemplateUser is the user of guests whose template has one (Server.GiveTemplate); sudo permits that user to become
// root.
const TemplateUser = "mpi"

// GiveTemplate makes the guests that start from now on come from a template with host keys of its own, and with
// TemplateUser, who logs in with a key. It returns the key's file, and the line of the host key for known_hosts,
// without the name.
func (s *Server) GiveTemplate(t testing.TB) (key, host string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(s.Guests), "template")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key = filepath.Join(t.TempDir(), "key")
	for _, f := range []string{key, filepath.Join(dir, "ssh_host_ed25519_key")} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public, err := os.ReadFile(key + ".pub")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "authorized_keys"), public, 0o600)
	}
	line, e := os.ReadFile(filepath.Join(dir, "ssh_host_ed25519_key.pub"))
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	return key, strings.TrimSpace(string(line))
}

// guests puts the script into PATH, and ends all guests with the test. It returns the directory that has a directory
// for each guest.
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
