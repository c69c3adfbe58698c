package state

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// MaxName is the maximum length of a cluster's name, in characters (spec.Cluster.Name).
const MaxName = 40

// MakeName returns a random name that is short enough to type and unlikely to be in use.
func MakeName() string {
	metals := [...]string{"iron", "zinc", "tin", "lead", "gold", "cobalt", "nickel", "copper",
		"silver", "chrome", "cerium", "indium", "osmium", "radium", "sodium", "barium"}
	var b [4]byte
	rand.Read(b[:])
	n := binary.LittleEndian.Uint32(b[:])
	return fmt.Sprintf("%s-%04x", metals[n%16], n>>16)
}
