package state

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// MaxName is the longest name of a cluster, in characters (spec.Cluster.Name).
const MaxName = 40

// MakeName makes up a name: short enough to type, unlikely to be in use.
func MakeName() string {
	metals := [...]string{"iron", "zinc", "tin", "lead", "gold", "cobalt", "nickel", "copper",
		"silver", "chrome", "cerium", "indium", "osmium", "radium", "sodium", "barium"}
	var b [4]byte
	rand.Read(b[:])
	n := binary.LittleEndian.Uint32(b[:])
	return fmt.Sprintf("%s-%04x", metals[n%16], n>>16)
}
