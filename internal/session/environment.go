package session

import (
	"sort"
	"strings"
)

// notInVM are variables of a session on the host that have no meaning in a VM, or that name files and sockets that do
// not exist there.
var notInVM = map[string]bool{
	"TMPDIR": true, "TMP": true, "TEMP": true, "XDG_RUNTIME_DIR": true,
	"DBUS_SESSION_BUS_ADDRESS": true, "DISPLAY": true, "WAYLAND_DISPLAY": true, "XAUTHORITY": true,
	"SSH_AUTH_SOCK": true, "SSH_AGENT_PID": true, "SSH_CLIENT": true, "SSH_CONNECTION": true, "SSH_TTY": true,
	"NEARMETAL_CLUSTER": true, "NEARMETAL_RUNTIME_DIR": true, "NEARMETAL_DEBUG": true,
	"TMUX": true, "STY": true, "NOTIFY_SOCKET": true, "INVOCATION_ID": true,
}

// Environment returns the environment of a command in a VM: the caller's, without variables that have a meaning only
// on the host, overridden by each further list in turn. Lists contain NAME=value. The result is sorted by name.
func Environment(caller []string, over ...[]string) []string {
	m := map[string]string{}
	for _, v := range caller {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" && !notInVM[name] {
			m[name] = value
		}
	}
	for _, list := range over {
		for _, v := range list {
			if name, value, ok := strings.Cut(v, "="); ok && name != "" {
				m[name] = value
			}
		}
	}
	env := make([]string, 0, len(m))
	for name, value := range m {
		env = append(env, name+"="+value)
	}
	sort.Strings(env)
	return env
}

// Pairs returns the variables of a map as NAME=value, sorted by name.
func Pairs(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list
}
