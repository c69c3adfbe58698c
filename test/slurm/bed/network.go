package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A cluster's nodes may each have a network of their own: a namespace whose one interface is
// joined to the others' and to this host by a bridge. Their addresses are of those that are
// kept for measuring networks (RFC 2544: 198.18.0.0/15).

// networkName is the file that names what was made, a word a line, written before it is made: namespaces, and
// the bridge last.
const networkName = "network"

// thisHost is the number of this host's address, behind the nodes'.
const thisHost = 62

// address of node i, counted from 1: of the 2,048 subnets of 64 addresses the one that follows from the cluster's port.
func (b *Bed) address(i int) string {
	if !b.o.Networks {
		return "127.0.0.1"
	}
	net := b.port / 16 % 2048
	return fmt.Sprintf("198.%d.%d.%d", 18+net>>10, net>>2&255, net&3<<6+i)
}

// space is the network namespace of a node.
func (b *Bed) space(node string) string { return filepath.Base(b.Dir) + "-" + node }

// startNetworks makes the nodes' networks.
func (b *Bed) startNetworks() error {
	bridge := fmt.Sprintf("nmb%d", b.port)
	var names []string
	for _, n := range b.Names() {
		names = append(names, b.space(n))
	}
	if err := os.WriteFile(b.Path(networkName), []byte(strings.Join(append(names, bridge), "\n")), 0o600); err != nil {
		return err
	}
	lines := []string{"link add " + bridge + " type bridge", "addr add " + b.address(thisHost) + "/26 dev " + bridge, "link set " + bridge + " up"}
	for i, n := range names {
		port := fmt.Sprintf("nmv%d-%d", b.port, i+1)
		lines = append(lines, "netns add "+n, "link add "+port+" type veth peer name eth0 netns "+n, "link set "+port+" master "+bridge+" up",
			"-n "+n+" addr add "+b.address(i+1)+"/26 dev eth0", "-n "+n+" link set eth0 up", "-n "+n+" link set lo up")
	}
	for _, l := range lines {
		if out, err := exec.Command("ip", strings.Fields(l)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", l, err, out)
		}
	}
	return nil
}

// removeNetworks removes what startNetworks made for the cluster of a directory, or the part of it that there is.
func removeNetworks(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, networkName))
	if err != nil {
		return nil // none
	}
	names := strings.Fields(string(text))
	var errs []error
	for i, n := range names {
		kind, there := []string{"netns", "del", n}, "/run/netns/"+n
		if i == len(names)-1 {
			kind, there = []string{"link", "del", n}, "/sys/class/net/"+n
		}
		if _, err := os.Lstat(there); err != nil {
			continue
		}
		if out, err := exec.Command("ip", kind...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip %v: %w: %s", kind, err, out))
		}
	}
	return errors.Join(errs...)
}

// inNetwork returns the words that run a program in a node's network, with /sys as it is: ip-netns(8) would mount
// another.
func (b *Bed) inNetwork(node string, words ...string) []string {
	if !b.o.Networks {
		return words
	}
	return append([]string{"nsenter", "--net=/run/netns/" + b.space(node)}, words...)
}
