package vsphere

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Variables with the server and the credentials. They are those of VMware's govc.
const (
	varURL        = "GOVC_URL"
	varUser       = "GOVC_USERNAME"
	varPassword   = "GOVC_PASSWORD"
	varInsecure   = "GOVC_INSECURE"
	varCAs        = "GOVC_TLS_CA_CERTS"
	varKnown      = "GOVC_TLS_KNOWN_HOSTS"
	varThumbprint = "GOVC_THUMBPRINT"
	varDatacenter = "GOVC_DATACENTER"
	// varGuest is USER:PASSWORD of a user in the VMs.
	varGuest = "GOVC_GUEST_LOGIN"
	// varFile names the file with such variables, instead of the user's default one.
	varFile = "NEARMETAL_VSPHERE_FILE"
)

var variables = []string{varURL, varUser, varPassword, varInsecure, varCAs, varKnown, varThumbprint, varDatacenter, varGuest}

// Access is the server and the credentials. It has no String method that could print the password.
type Access struct {
	server     string // host, with a port if it is another than 443
	user       string
	password   secret
	insecure   bool   // certificates are not checked
	cas        string // files of certificates, as a path list; "": the system's
	known      string // files of thumbprints, lines "HOST THUMBPRINT"
	thumbprint string // of the server's certificate, SHA-256 or SHA-1; "": none
	datacenter string // "": the only one
	guestUser  string // user in the VMs; "": ssh logs in
	guestPass  secret
}

// secret is text that no format prints: for an unexported field, fmt prints the pointer.
type secret struct{ text *string }

func newSecret(text string) secret { return secret{&text} }

// reveal returns the text, for the call that needs it.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Server returns the server's name, as the user wrote it.
func (a *Access) Server() string { return a.server }

// ReadAccess determines the server and the credentials: server, if it is not empty, else GOVC_URL; the rest from the
// variables GOVC_*, or from the user's file, which has the same variables. The file must be the user's own, of mode
// 0600.
func ReadAccess(server string) (*Access, error) {
	v, err := readVariables()
	if err != nil {
		return nil, err
	}
	text := v[varURL]
	if server != "" {
		text = server
	}
	if text == "" {
		return nil, fmt.Errorf("set %s to your vCenter", varURL)
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		// The text is not printed, because it may contain a password.
		return nil, errors.New("the vSphere server's name is not a URL: write HOST, HOST:PORT or https://HOST/sdk")
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("vSphere server %s: %s would send the password in the open: write https", u.Host, u.Scheme)
	}
	if _, has := u.User.Password(); has && server != "" {
		return nil, fmt.Errorf("a password does not belong into a name: set %s, or write it into a file", varPassword)
	}
	a := &Access{server: u.Host, user: v[varUser], password: newSecret(v[varPassword]), cas: v[varCAs], known: v[varKnown],
		thumbprint: strings.ToUpper(v[varThumbprint]), datacenter: v[varDatacenter]}
	if text := v[varGuest]; text != "" {
		name, word, ok := strings.Cut(text, ":")
		if !ok || name == "" || word == "" {
			return nil, fmt.Errorf("%s is not USER:PASSWORD", varGuest)
		}
		a.guestUser, a.guestPass = name, newSecret(word)
	}
	if a.user == "" {
		a.user = u.User.Username()
	}
	if p, has := u.User.Password(); has && a.password.reveal() == "" {
		a.password = newSecret(p)
	}
	switch strings.ToLower(v[varInsecure]) {
	case "", "0", "false":
	case "1", "true":
		a.insecure = true
	default:
		return nil, fmt.Errorf("%s is neither true nor false", varInsecure)
	}
	if a.user == "" {
		return nil, fmt.Errorf("vSphere server %s: no user is named: set %s", a.server, varUser)
	}
	return a, nil
}

// guest returns the user in the VMs, with the password; "": none.
func (a *Access) guest() (user, password string) { return a.guestUser, a.guestPass.reveal() }

// Missing reports whether the password has to be asked for.
func (a *Access) Missing() bool { return a.password.reveal() == "" }

// Keep puts a password that was asked for into this process's environment, where the processes that it starts for the
// cluster find it.
func (a *Access) Keep(password string) {
	a.password = newSecret(password)
	os.Setenv(varPassword, password)
}

// readVariables returns the variables of the user's file, overridden by those of the environment.
func readVariables() (map[string]string, error) {
	v := map[string]string{}
	path := os.Getenv(varFile)
	named := path != ""
	if !named {
		dir, err := os.UserConfigDir()
		if err == nil {
			path = filepath.Join(dir, "nearmetal", "vsphere")
		}
	}
	if path != "" {
		err := readFile(path, v)
		if err != nil && (named || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	for _, name := range variables {
		if value := os.Getenv(name); value != "" {
			v[name] = value
		}
	}
	return v, nil
}

// readFile reads lines NAME=VALUE; empty lines and lines that begin with # are ignored. Others must not be able to
// read or write the file, because it may contain a password.
func readFile(path string, v map[string]string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: not a file", path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: others can read or change it (mode %04o): chmod 600 it", path, st.Mode().Perm())
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: it belongs to another user", path)
	}
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !known(name) {
			// The line is not printed, because it may be a password.
			return fmt.Errorf("%s:%d: not one of %s", path, n, strings.Join(variables, ", "))
		}
		v[name] = strings.Trim(strings.TrimSpace(value), `"'`)
	}
	return sc.Err()
}

func known(name string) bool {
	for _, k := range variables {
		if k == name {
			return true
		}
	}
	return false
}
