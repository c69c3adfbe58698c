// Package vcsim is a vCenter for tests: govmomi's simulator, with its gaps filled as VMware's API describes hosts.
// Its hosts have several NUMA nodes, cards with virtual functions and cards passed through, and the host settings
// that the simulator lacks. A proxy in front of it counts calls, and can fail any of them. A process has one vCenter
// at a time, because the simulator is global.
package vcsim

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Options of a vCenter.
type Options struct {
	Hosts int // in one cluster; 0: 2
	Delay int // of every call, in milliseconds
	// Guests: clones have guests, in which programs run (GuestsWork).
	Guests bool
}

// Server is a running vCenter.
type Server struct {
	Addr string // HOST:PORT
	CA   string // a file with its certificate
	Host string // name of the first host
	// Guests is a directory with a directory for each guest.
	Guests string

	mu    sync.Mutex
	calls []string          // methods, in their order
	last  map[string]string // the last request of each method
	kept  *[]Request        // requests that are kept; nil: none
	// fail is called before each call; it returns the call's failure.
	fail func(n int, method string) Failure
	// task is called before each task; see Tasks.
	task func(name string) types.BaseMethodFault
	// cloning are the running clone tasks, each with the VMs that have appeared since its start.
	cloning map[types.ManagedObjectReference][]types.ManagedObjectReference
}

// Failure is the fate of a call. The zero value lets it pass.
type Failure struct {
	Fault string // XML element of the fault: "<NotAuthenticatedFault …/>"; with Text
	Text  string // vCenter's words
	Drop  bool   // the connection is closed before the call is carried out
	After bool   // the call is carried out first
	Then  func() // called before the answer
}

// The login, and existing objects.
const (
	User     = "nm-user"
	Password = "nm-pass-word"
	Template = "DC0_C0_RP0_VM0"
	VGPU     = "grid_v100-4q" // a profile that all hosts offer
)

var one sync.Mutex // the simulator is global

// Start starts a vCenter for a test, and sets the variables by which it is found.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	one.Lock()
	m := simulator.VPX()
	m.Host, m.ClusterHost, m.Machine, m.Autostart = 0, o.Hosts, 2, false
	if o.Hosts == 0 {
		m.ClusterHost = 2
	}
	m.DelayConfig.Delay = o.Delay
	m.ServiceContent.About.ApiVersion = "8.0.2.0"
	if err := m.Create(); err != nil {
		one.Unlock()
		t.Fatal(err)
	}
	s := &Server{Host: "DC0_C0_H0"}
	for _, h := range s.Hosts() {
		describe(h)
		h.Config.SharedPassthruGpuTypes = []string{VGPU}
		manage(h)
	}
	for _, e := range simulator.Map.All("ClusterComputeResource") {
		c := e.(*simulator.ClusterComputeResource)
		if b, ok := simulator.Map.Get(*c.EnvironmentBrowser).(*simulator.EnvironmentBrowser); ok {
			b.QueryConfigTargetResponse = types.QueryConfigTargetResponse{Returnval: target(s.Hosts()[0])}
		}
	}
	linearCollectors()
	if o.Guests {
		s.Guests = guests(t)
	}
	for _, e := range simulator.Map.All("ResourcePool") {
		room(e.(*simulator.ResourcePool), len(s.Hosts()))
	}
	simulator.Map.AddHandler(&tasks{s, types.ManagedObjectReference{Type: "Tasks", Value: "tasks"}})
	m.Service.Listen = &url.URL{User: url.UserPassword(User, Password), Host: "127.0.0.1:0"}
	sim := m.Service.NewServer()
	to := *sim.URL
	to.Path, to.User = "", nil
	onward := httputil.NewSingleHostReverseProxy(&to)
	onward.ErrorLog = log.New(io.Discard, "", 0) // errors for clients that have gone
	onward.ModifyResponse = secure
	front := httptest.NewUnstartedServer(s.proxy(onward))
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // errors for certificates that clients do not trust
	front.StartTLS()
	s.Addr = front.Listener.Addr().String()
	s.CA = filepath.Join(t.TempDir(), "vcenter.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	for name, text := range map[string][]byte{s.CA: text, s.CA + ".none": nil} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range s.Env() {
		t.Setenv(name, value)
	}
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		sim.Close()
		m.Remove()
		one.Unlock()
	})
	return s
}

// Env returns the variables by which the vCenter is found.
func (s *Server) Env() map[string]string {
	return map[string]string{"GOVC_URL": s.Addr, "GOVC_USERNAME": User, "GOVC_PASSWORD": Password, "GOVC_TLS_CA_CERTS": s.CA,
		"GOVC_GUEST_LOGIN": "", "GOVC_INSECURE": "", "GOVC_THUMBPRINT": "", "GOVC_DATACENTER": "", "GOVC_TLS_KNOWN_HOSTS": "", "NEARMETAL_VSPHERE_FILE": s.CA + ".none"}
}

// Hosts returns the vCenter's hosts, by name.
func (s *Server) Hosts() []*simulator.HostSystem {
	var list []*simulator.HostSystem
	for _, e := range simulator.Map.All("HostSystem") {
		list = append(list, e.(*simulator.HostSystem))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Fail makes every call ask f for its failure; n counts calls from 1, from now on. nil: all calls pass.
func (s *Server) Fail(f func(n int, method string) Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.fail = nil, f
}

// Last returns the last request of a method, as XML; "": none.
func (s *Server) Last(method string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[method]
}

// Request is a call, with its SOAP envelope.
type Request struct{ Method, Text string }

// Requests returns the calls made while f runs.
func (s *Server) Requests(f func()) []Request {
	var list []Request
	keep := func(to *[]Request) {
		s.mu.Lock()
		s.kept = to
		s.mu.Unlock()
	}
	keep(&list)
	defer keep(nil)
	f()
	return list
}

// Calls returns the methods called since the start, or the last Fail.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

var method = regexp.MustCompile(`<(?:[A-Za-z0-9]+:)?Body[^>]*>\s*<(?:[A-Za-z0-9]+:)?([A-Za-z0-9_]+)`)

// withGuest has the advanced settings with which the simulator runs a guest for a VM.
const withGuest = `<extraConfig xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="OptionValue"><key>RUN.container</key>` +
	`<value xmlns:xsd="http://www.w3.org/2001/XMLSchema" i:type="xsd:string">guest</value></extraConfig>` +
	`<extraConfig xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="OptionValue"><key>RUN.mountdmi</key>` +
	`<value xmlns:xsd="http://www.w3.org/2001/XMLSchema" i:type="xsd:string">false</value></extraConfig>`

// plain marks a call whose answer has an address of the simulator, which uses plain http behind the proxy. Its value
// is the proxy's address.
const plain = "X-Nearmetal-Plain"

// secure replaces such an address by the proxy's.
func secure(r *http.Response) error {
	if r.Request.Header.Get(plain) == "" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body.Close()
	_, port, _ := net.SplitHostPort(r.Request.Header.Get(plain))
	// In vCenter's form: the client inserts the host.
	body = bytes.ReplaceAll(body, []byte("http://*"), []byte("https://*:"+port))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil
}

// program matches the program of a start request, without quotes.
var program = regexp.MustCompile(`<programPath>([^<']*)</programPath>\s*<arguments>([^<']*)</arguments>`)

var longWait = regexp.MustCompile(`<maxWaitSeconds>\d+</maxWaitSeconds>`)

// proxy counts calls, and fails those selected by Fail.
func (s *Server) proxy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		m := method.FindSubmatch(body)
		if m == nil {
			next.ServeHTTP(w, r)
			return
		}
		if s.Guests != "" && string(m[1]) == "ReconfigVM_Task" { // the simulator ignores the settings of a clone's call
			body = bytes.Replace(body, []byte("<extraConfig"), []byte(withGuest+"<extraConfig"), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
		}
		if string(m[1]) == "CreateContainerView" { // the simulator's switches are of the base type
			body = bytes.ReplaceAll(body, []byte(">VmwareDistributedVirtualSwitch<"), []byte(">DistributedVirtualSwitch<"))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
		}
		if strings.HasPrefix(string(m[1]), "InitiateFileTransfer") {
			r.Header.Set(plain, s.Addr)
		}
		// The simulator does not notice that a client has gone, and keeps waiting.
		if string(m[1]) == "WaitForUpdatesEx" {
			body = longWait.ReplaceAll(body, []byte("<maxWaitSeconds>2</maxWaitSeconds>"))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
		}
		// The simulator passes the program to a shell of this machine, which must not interpret it.
		if string(m[1]) == "StartProgramInGuest" {
			inside := program.ReplaceAll(body, []byte("<programPath>/bin/sh</programPath><arguments>-c '$1 $2'</arguments>"))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(inside)), int64(len(inside))
			r.Header.Set("Content-Length", fmt.Sprint(len(inside)))
		}
		var f Failure
		s.mu.Lock()
		s.calls = append(s.calls, string(m[1]))
		if s.last == nil {
			s.last = map[string]string{}
		}
		s.last[string(m[1])] = string(body)
		if s.kept != nil {
			*s.kept = append(*s.kept, Request{string(m[1]), string(body)})
		}
		ask, n := s.fail, len(s.calls)
		s.mu.Unlock()
		if ask != nil {
			f = ask(n, string(m[1]))
		}
		if busy, yes := s.busy(string(m[1]), body); yes && (f.After || f.Fault == "" && !f.Drop) {
			f = busy
		}
		if f.Fault == "" && f.Text == "" && !f.Drop && f.Then == nil {
			next.ServeHTTP(w, r)
			return
		}
		if f.After {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		if f.Then != nil {
			f.Then()
		}
		if f.Drop {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/xml; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" `+
			`xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"><soapenv:Body><soapenv:Fault>`+
			`<faultcode>ServerFaultCode</faultcode><faultstring>%s</faultstring><detail>%s</detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`, f.Text, f.Fault)
	})
}
