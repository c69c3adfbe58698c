// Package qemu carries out a plan with QEMU processes: it probes the capabilities of the installed QEMU, renders a VM
// of a plan as a command line made of typed devices, starts it as a child that dies with its parent, and communicates
// with it by QMP.
package qemu

import (
	"os"

	"nearmetal/internal/backend"
)

// Files are the open files that QEMU inherits. Start leaves them open.
type Files struct {
	backend.Files
	Channel *os.File // QEMU's end of a stream socket pair: the agent's virtio-serial port
}
