package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// maxName is the longest name of a cluster, in characters (spec.Cluster.Name).
const maxName = 40

// CheckName says what is wrong with the name of a cluster: it becomes a directory.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && name[0] != '-'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	}
	if !ok {
		return fmt.Errorf("%q is no name of a cluster: letters, digits and hyphens, at most %d", name, maxName)
	}
	return nil
}

// makeName makes up a name: short enough to type, unlikely to be in use.
func makeName() string {
	metals := [...]string{"iron", "zinc", "tin", "lead", "gold", "cobalt", "nickel", "copper",
		"silver", "chrome", "cerium", "indium", "osmium", "radium", "sodium", "barium"}
	var b [4]byte
	rand.Read(b[:])
	n := binary.LittleEndian.Uint32(b[:])
	return fmt.Sprintf("%s-%04x", metals[n%16], n>>16)
}
