package image

import (
	"bytes"
	"embed"
	"errors"
)

// make builds the agent from guest/ and copies it to payload/ before it builds the program.
//
//go:embed payload
var files embed.FS

// Agent returns the program of the guest's agent, a static x86-64 ELF.
func Agent() ([]byte, error) {
	b, err := files.ReadFile("payload/agent-x86_64")
	if err != nil {
		return nil, errors.New("this nearmetal was built without the guest agent: run make in its source directory")
	}
	if !bytes.HasPrefix(b, []byte("\x7fELF")) {
		return nil, errors.New("the guest agent in this nearmetal is not an ELF program: run make in its source directory")
	}
	return b, nil
}
