package vsphere

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Session is a login at a vCenter or an ESXi host. Its methods may be called from several goroutines.
type Session struct {
	access *Access
	client *govmomi.Client
	finder *find.Finder
	pc     *property.Collector
}

// Bounds of a login.
const (
	loginBound  = 60 * time.Second
	logoutBound = 5 * time.Second
	// aliveEvery keeps the server from ending a session, which it does after 30 minutes.
	aliveEvery = 5 * time.Minute
)

// Login logs in. The server's certificate is verified with the system's certificates or GOVC_TLS_CA_CERTS, or its
// thumbprint with the given one. The error for an untrusted certificate has its thumbprint.
func Login(ctx context.Context, a *Access) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, loginBound)
	defer cancel()
	if a.Missing() {
		return nil, fmt.Errorf("vSphere server %s: no password for %s: set %s, or write it into a file of mode 0600 (docs/vsphere.md)", a.server, a.user, varPassword)
	}
	sc := soap.NewClient(&url.URL{Scheme: "https", Host: a.server, Path: vim25.Path}, a.insecure)
	if a.cas != "" {
		if err := sc.SetRootCAs(a.cas); err != nil {
			return nil, fmt.Errorf("%s: %w", varCAs, err)
		}
	}
	if err := sc.LoadThumbprints(a.known); err != nil {
		return nil, fmt.Errorf("%s: %w", varKnown, err)
	}
	if a.thumbprint != "" {
		sc.SetThumbprint(a.server, a.thumbprint)
	}
	vc, err := vim25.NewClient(ctx, sc)
	if err != nil {
		return nil, a.unreached(ctx, err)
	}
	s := &Session{access: a, client: &govmomi.Client{Client: vc, SessionManager: session.NewManager(vc)}}
	if err := s.login(ctx); err != nil {
		return nil, err
	}
	vc.RoundTripper = &relogin{RoundTripper: session.KeepAlive(vc.RoundTripper, aliveEvery), s: s}
	s.finder = find.NewFinder(vc, true)
	s.pc = property.DefaultCollector(vc)
	return s, nil
}

// login logs in with the existing client.
func (s *Session) login(ctx context.Context) error {
	a := s.access
	err := s.client.SessionManager.Login(ctx, url.UserPassword(a.user, a.password.reveal()))
	var wrong *types.InvalidLogin
	if _, ok := fault.As(err, &wrong); ok {
		return fmt.Errorf("vSphere server %s: user name or password of %s is wrong", a.server, a.user)
	}
	return s.explain("log in", err)
}

// Close logs out.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), logoutBound)
	defer cancel()
	if err := s.client.SessionManager.Logout(ctx); err != nil {
		var gone *types.NotAuthenticated
		if _, ok := fault.As(err, &gone); !ok {
			return s.explain("log out", err)
		}
	}
	s.client.CloseIdleConnections()
	return nil
}

// unreached returns the reason why a server cannot be reached.
func (a *Access) unreached(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if soap.IsCertificateUntrusted(err) {
		if print := a.seen(ctx); print != "" {
			return fmt.Errorf("vSphere server %s: its certificate is not trusted: if its SHA-256 thumbprint is %s, set %s to that; or name its authority in %s", a.server, print, varThumbprint, varCAs)
		}
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("vSphere server %s: %w", a.server, err)
}

// seen returns the thumbprint of the certificate that the server presents; "": none. Nothing is sent.
func (a *Access) seen(ctx context.Context) string {
	addr := a.server
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, "443")
	}
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // only to report the server that answered
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	var certs []*x509.Certificate
	if t, ok := conn.(*tls.Conn); ok {
		certs = t.ConnectionState().PeerCertificates
	}
	if len(certs) == 0 {
		return ""
	}
	return soap.ThumbprintSHA256(certs[0])
}

// relogin logs in again if the server has ended the session, and repeats the call, which the server has not begun.
type relogin struct {
	soap.RoundTripper
	s      *Session
	mu     sync.Mutex
	logins atomic.Int64
}

func (r *relogin) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	before := r.logins.Load()
	err := r.RoundTripper.RoundTrip(ctx, req, res)
	var out *types.NotAuthenticated
	if err == nil || !soap.IsSoapFault(err) {
		return err
	}
	if _, ok := fault.As(err, &out); !ok {
		return err
	}
	switch req.(type) {
	case *methods.LoginBody, *methods.LogoutBody:
		return err
	}
	if r.login(ctx, before) != nil {
		return err
	}
	reflect.ValueOf(res).Elem().SetZero() // contains the fault
	return r.RoundTripper.RoundTrip(ctx, req, res)
}

// login logs in, unless another call has done so since the number of logins was before.
func (r *relogin) login(ctx context.Context, before int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logins.Load() != before {
		return nil
	}
	// A server that has forgotten only half of the session rejects a login in it.
	r.s.client.SessionManager.Logout(ctx)
	err := r.s.login(ctx)
	if err == nil {
		r.logins.Add(1)
	}
	return err
}

// datacenter makes the finder look in the named datacenter, or in the only one. A path that begins with / names its
// own.
func (s *Session) datacenter(ctx context.Context, name string) error {
	if name == "" {
		name = s.access.datacenter
	}
	dc, err := s.finder.DatacenterOrDefault(ctx, name)
	var several *find.DefaultMultipleFoundError
	if errors.As(err, &several) {
		return fmt.Errorf("vSphere server %s: several datacenters: name one in vsphere.datacenter or %s", s.access.server, varDatacenter)
	}
	if err != nil {
		return s.explain("find the datacenter", err)
	}
	s.finder.SetDatacenter(dc)
	return nil
}

// retrieve reads properties of one object.
func (s *Session) retrieve(ctx context.Context, ref types.ManagedObjectReference, props []string, dst any) error {
	return s.pc.RetrieveOne(ctx, ref, props, dst)
}
