package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/remote"
)

// sshPause is the time between attempts to connect to an ssh server that does not answer yet.
const sshPause = time.Second

// Agent waits for VMware Tools and the guest's address, and starts nearmetal's agent there by ssh; the connection is
// the agent's carrier. With a password of the guests (GOVC_GUEST_LOGIN), vCenter first exchanges a key of the cluster
// and the guest's host keys. Otherwise the user's own ssh logs in, and knows the template's host key under the name
// nearmetal-TEMPLATE.
func (i *instance) Agent(ctx context.Context) (io.ReadWriteCloser, error) {
	if err := i.awaitTools(ctx); err != nil {
		return nil, err
	}
	dir, err := i.directory()
	if err != nil {
		return nil, err
	}
	user := i.d.place.file.User
	login := remote.Login{Alias: "nearmetal-" + aliasOf(i.d.place.template.Name)}
	if u, password := i.d.login.guest(); u != "" {
		user = u
		if err := i.d.keys.make(dir); err != nil {
			return nil, err
		}
		lines, err := i.handOver(ctx, u, password, i.d.keys.public)
		if err != nil {
			return nil, err
		}
		login = remote.Login{Key: i.d.keys.private, Known: filepath.Join(dir, i.plan.Name+".known"), Alias: "nearmetal-" + i.mark}
		var text strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&text, "%s %s\n", login.Alias, l)
		}
		if err := os.WriteFile(login.Known, []byte(text.String()), 0o600); err != nil {
			return nil, err
		}
		i.log.Say("the key for ssh was handed over by vCenter")
	}
	files, name, err := i.files(dir)
	if err != nil {
		return nil, err
	}
	host := user + "@" + i.address().Addr().String()
	s, err := i.connect(ctx, login, host, files, name)
	if err != nil {
		return nil, err
	}
	i.log.Say("the agent runs, by ssh to %s", host)
	return &carrier{Session: s, i: i}, nil
}

// connect starts the agent, and retries while no ssh server answers.
func (i *instance) connect(ctx context.Context, l remote.Login, host string, files *remote.Files, config string) (*remote.Session, error) {
	for {
		s, err := remote.StartAs(ctx, l, host, files, "--stdio", config)
		var not *remote.Unreached
		if errors.As(err, &not) && l.Known == "" && strings.Contains(not.Why, "Host key verification failed") {
			return nil, fmt.Errorf("%w write the template's host key into known_hosts under the name %s", err, l.Alias)
		}
		if err == nil || !errors.As(err, &not) || !strings.Contains(not.Why, "Connection refused") && !strings.Contains(not.Why, "timed out") && !strings.Contains(not.Why, "No route") {
			return s, err
		}
		select {
		case <-time.After(sshPause):
		case <-i.done:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// directory returns a directory for files of the VM that is removed with the cluster.
func (i *instance) directory() (string, error) {
	if i.log == "" {
		return "", errors.New("it has no directory")
	}
	return filepath.Dir(string(i.log)), nil
}

// files returns the agent's program and its configuration, and the configuration's name.
func (i *instance) files(dir string) (*remote.Files, string, error) {
	program, err := i.d.agentFile(dir)
	if err != nil {
		return nil, "", err
	}
	name := "config-" + i.mark // VMs may share home directories
	local := filepath.Join(dir, i.plan.Name+".config")
	if err := os.WriteFile(local, i.config(), 0o600); err != nil {
		return nil, "", err
	}
	f, err := remote.NewFiles(remote.File{Local: program, Remote: "nearmetal-agent"}, remote.File{Local: local, Remote: name})
	return f, name, err
}

// agentFile writes the agent's program to a file and returns its path.
func (d *driver) agentFile(dir string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := filepath.Join(dir, "vsphere-agent")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	b, err := image.Agent()
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b, 0o600)
}

// aliasOf converts a template's name into a word for known_hosts.
func aliasOf(name string) string {
	return strings.ToLower(hostName(name))
}

// carrier is the connection to the agent. When it ends, the VM is removed, because it is useless without its agent.
type carrier struct {
	*remote.Session
	i    *instance
	once sync.Once
}

func (c *carrier) Read(p []byte) (int, error) {
	n, err := c.Session.Read(p)
	if err != nil {
		c.once.Do(func() {
			c.i.log.Say("the agent's connection has ended: %v", err)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), backend.AttachTimeout)
				defer cancel()
				if e := c.i.Kill(ctx); e != nil {
					c.i.log.Say("%v", e) // the cluster's end retries
				}
			}()
		})
	}
	return n, err
}
