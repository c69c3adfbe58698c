// Package carry is the agent's carrier for a VM that is reached over a network: TLS in which both ends prove that
// they know one secret. The secret is the VM's own. It reaches the VM on its configuration drive, as cloud-init's
// user data.
package carry

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/network"
)

// Port is the TCP port that the agent listens on.
const Port = 7641

// Settings are passed to a VM.
type Settings struct {
	Name   string `json:"name"`   // of the VM
	Secret string `json:"secret"` // 32 bytes, in hexadecimal digits
	Listen string `json:"listen"` // address and port; ":7641" is any address
	Config string `json:"config"` // the agent's configuration (guest.Config)
}

const (
	secretBytes = 32
	settingsMax = 1 << 20 // bytes
	// dataMax bounds user data in bytes: 65535 in base64, which is OpenStack's limit.
	dataMax = 65535/4*3 - 32
	// handshakeTime bounds the time in which a caller has to prove that it knows the secret.
	handshakeTime = 10 * time.Second
)

// NewSecret returns a new secret in the form of Settings.
func NewSecret() (string, error) {
	var b [secretBytes]byte
	_, err := rand.Read(b[:])
	return hex.EncodeToString(b[:]), err
}

func config(secret string) (*tls.Config, error) {
	b, err := hex.DecodeString(secret)
	if err != nil || len(b) != secretBytes {
		return nil, errors.New("the agent's secret is not 32 bytes in hexadecimal digits")
	}
	return network.SecretTLS(b)
}

// UserData returns the text with which cloud-init starts the agent, in an image with nearmetal; JSON is valid YAML.
// The settings are in a file of root in memory, which the agent removes after reading it.
func (s Settings) UserData() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	const path = "/run/nearmetal-agent.json"
	data, err := json.Marshal(map[string]any{
		"write_files": []map[string]any{{"path": path, "permissions": "0600", "owner": "root:root", "content": string(text)}},
		"runcmd":      [][]string{{"systemd-run", "--unit=nearmetal-agent", "--collect", "nearmetal", "cloud-agent", path}},
	})
	if len(data) > dataMax {
		return nil, fmt.Errorf("what the agent of %s has to know takes %d bytes, and user data has room for %d: fewer VMs", s.Name, len(data), dataMax)
	}
	return append([]byte("#cloud-config\n"), data...), err
}

// ReadSettings reads a file of settings and removes it, so that no file contains the secret afterwards.
func ReadSettings(path string) (*Settings, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &Settings{}
	if err := json.NewDecoder(io.LimitReader(f, settingsMax)).Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := config(s.Secret); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, os.Remove(path)
}

// Hosts returns the lines of /etc/hosts in a configuration, without invalid ones.
func (s *Settings) Hosts() []string {
	var lines []string
	for _, line := range strings.Split(s.Config, "\n") {
		rest, ok := strings.CutPrefix(line, "host ")
		if f := strings.Fields(rest); ok && len(f) >= 2 && net.ParseIP(f[0]) != nil {
			lines = append(lines, strings.Join(f, "\t"))
		}
	}
	return lines
}

// Dial connects to a VM's agent, which proves that it knows the secret.
func Dial(ctx context.Context, address, secret string) (net.Conn, error) {
	c, err := config(secret)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// If the other end rejects the certificate, only the first read fails: with TLS 1.3 this end completes the
	// handshake earlier.
	t := conn.(*tls.Conn)
	if end, ok := ctx.Deadline(); ok {
		t.SetReadDeadline(end)
	}
	var b [1]byte
	if _, err := io.ReadFull(t, b[:]); err != nil || b[0] != welcome {
		conn.Close()
		return nil, fmt.Errorf("the agent does not answer: %w", errors.Join(err))
	}
	t.SetReadDeadline(time.Time{})
	return conn, nil
}

// welcome is the byte that the VM's end sends first, to a caller that has proved that it knows the secret.
const welcome = '+'

// Accept returns the first caller that proves that it knows the secret. Others are closed, and cannot block that
// caller. It fails when the context or the listener ends.
func Accept(ctx context.Context, l net.Listener, secret string) (net.Conn, error) {
	c, err := config(secret)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-ctx.Done()
		l.Close()
	}()
	found := make(chan net.Conn)
	failed := make(chan error, 1)
	var callers network.Callers
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			callers.Add(raw)
			go func() {
				t, err := greet(ctx, raw, c)
				callers.Done(raw)
				if err != nil {
					raw.Close()
					return
				}
				select {
				case found <- t:
				case <-ctx.Done():
					raw.Close()
				}
			}()
		}
	}()
	select {
	case conn := <-found:
		return conn, nil
	case err := <-failed:
		return nil, errors.Join(context.Cause(ctx), err)
	}
}

// greet has a caller prove that it knows the secret, within handshakeTime.
func greet(ctx context.Context, raw net.Conn, c *tls.Config) (net.Conn, error) {
	t := tls.Server(raw, c)
	t.SetDeadline(time.Now().Add(handshakeTime))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if _, err := t.Write([]byte{welcome}); err != nil {
		return nil, err
	}
	return t, t.SetDeadline(time.Time{})
}
