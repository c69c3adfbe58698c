package vsphere

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// TestAccess: the server and the credentials come from variables and a file that only its user can read; no name,
// format or error contains a password.
func TestAccess(t *testing.T) {
	for _, v := range variables {
		t.Setenv(v, "")
	}
	path := filepath.Join(t.TempDir(), "vsphere")
	t.Setenv(varFile, path)
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("# mine\nexport GOVC_URL=vc.example.com\nGOVC_USERNAME='ann'\nGOVC_PASSWORD=hidden=1\n", 0o600)
	a, err := ReadAccess("")
	if err != nil || a.server != "vc.example.com" || a.user != "ann" || a.password.reveal() != "hidden=1" {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, f := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(f, *a); strings.Contains(text, "hidden") {
			t.Errorf("%s shows the password: %s", f, text)
		}
	}
	t.Setenv("GOVC_PASSWORD", "over")
	if a, err := ReadAccess("other:8443"); err != nil || a.server != "other:8443" || a.password.reveal() != "over" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, x := range []struct{ server, text, want string }{
		{"", "GOVC_URL=vc\nGOVC_USERNAME=a\nhidden\n", "vsphere:3: not one of GOVC_URL"},
		{"", "GOVC_USERNAME=a\n", "set GOVC_URL to your vCenter"},
		{"", "GOVC_URL=vc\n", "no user is named"},
		{"http://vc", "GOVC_USERNAME=a\n", "in the open"},
		{"https://a:hidden@vc", "", "does not belong into a name"},
		{"https://a:hid den@v c/%zz", "", "is not a URL"},
		{"vc", "GOVC_USERNAME=a\nGOVC_INSECURE=maybe\n", "neither true nor false"},
	} {
		write(x.text, 0o600)
		if _, err := ReadAccess(x.server); err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "hid") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	write("GOVC_URL=vc\n", 0o640)
	if _, err := ReadAccess(""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("%v", err)
	}
	os.Remove(path)
	if _, err := ReadAccess(""); err == nil {
		t.Error("a file that is named and not there was taken")
	}
}

// TestCertificate: certificates are verified; a given thumbprint is accepted only if it is the right one.
func TestCertificate(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	login := func(vars map[string]string) error {
		t.Helper()
		for name, value := range s.Env() {
			t.Setenv(name, value)
		}
		for name, value := range vars {
			t.Setenv(name, value)
		}
		a, err := ReadAccess("")
		if err != nil {
			t.Fatal(err)
		}
		x, err := Login(context.Background(), a)
		if err == nil {
			err = x.Close()
		}
		return err
	}
	if err := login(nil); err != nil {
		t.Fatal(err)
	}
	err := login(map[string]string{"GOVC_TLS_CA_CERTS": ""})
	if err == nil || !strings.Contains(err.Error(), "not trusted") || len(s.Calls()) == 0 {
		t.Fatalf("%v", err)
	}
	_, print, _ := strings.Cut(err.Error(), "thumbprint is ")
	print, _, _ = strings.Cut(print, ",")
	if err := login(map[string]string{"GOVC_TLS_CA_CERTS": "", "GOVC_THUMBPRINT": strings.ToLower(print)}); err != nil {
		t.Errorf("%v", err)
	}
	s.Fail(nil)
	wrong := print[:len(print)-2] + "00"
	if err := login(map[string]string{"GOVC_TLS_CA_CERTS": "", "GOVC_THUMBPRINT": wrong}); err == nil || len(s.Calls()) > 0 {
		t.Errorf("%v, with calls %v", err, s.Calls())
	}
	if err := login(map[string]string{"GOVC_PASSWORD": "wrong"}); err == nil || !strings.Contains(err.Error(), "user name or password of "+vcsim.User) {
		t.Errorf("%v", err)
	}
	if err := login(map[string]string{"GOVC_PASSWORD": ""}); err == nil || !strings.Contains(err.Error(), "no password for") {
		t.Errorf("%v", err)
	}
}

// TestFaults: a session that the server has ended is renewed; a missing privilege is named with its object.
func TestFaults(t *testing.T) {
	s := vcsim.Start(t, vcsim.Options{})
	expired := 0
	s.Fail(func(n int, method string) vcsim.Failure {
		if method == "RetrievePropertiesEx" && expired == 0 {
			expired++
			return vcsim.Failure{Text: "The session is not authenticated.", Fault: `<NotAuthenticatedFault xmlns="urn:vim25" xsi:type="NotAuthenticated"><object type="Folder">group-d1</object><privilegeId>System.View</privilegeId></NotAuthenticatedFault>`}
		}
		return vcsim.Failure{}
	})
	if _, err := (Part{}).Topology(context.Background(), s.Host); err != nil || expired != 1 {
		t.Errorf("%v, %d", err, expired)
	}
	calls := strings.Join(s.Calls(), " ")
	if strings.Count(calls, "Login") != 2 || !strings.HasSuffix(calls, "Logout") {
		t.Errorf("%s", calls)
	}
	s.Fail(func(n int, method string) vcsim.Failure {
		if method == "QueryConfigTarget" {
			return vcsim.Failure{Text: "Permission to perform this operation was denied.", Fault: `<NoPermissionFault xmlns="urn:vim25" xsi:type="NoPermission"><object type="ComputeResource">domain-c9</object><privilegeId>VirtualMachine.Config.HostUSBDevice</privilegeId></NoPermissionFault>`}
		}
		return vcsim.Failure{}
	})
	_, err := (Part{}).Topology(context.Background(), s.Host)
	if err == nil || !strings.Contains(err.Error(), vcsim.User+" lacks VirtualMachine.Config.HostUSBDevice on ComputeResource domain-c9") {
		t.Errorf("%v", err)
	}
	// Each call fails once, with one line that states what could not be done.
	s.Fail(nil)
	(Part{}).Topology(context.Background(), s.Host)
	all := len(s.Calls())
	for i := 1; i < all; i++ {
		for _, drop := range []bool{i%2 == 0} {
			s.Fail(func(n int, method string) vcsim.Failure {
				if n == i {
					return vcsim.Failure{Drop: drop, Text: "A general system error occurred: the disk is full", Fault: `<SystemErrorFault xmlns="urn:vim25" xsi:type="SystemError"><reason>the disk is full</reason></SystemErrorFault>`}
				}
				return vcsim.Failure{}
			})
			_, err := (Part{}).Topology(context.Background(), s.Host)
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "vSphere server "+s.Addr) || strings.Contains(err.Error(), vcsim.Password) || !drop && !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("call %d, drop %v: %v", i, drop, err)
			}
		}
	}
}
