// Package qemu carries a plan out with QEMU processes: it probes what the
// installed QEMU can do, renders a VM of a plan as a command line made of typed
// devices, starts it as a child that dies with its parent, and talks QMP to it.
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
