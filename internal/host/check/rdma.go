package check

type rdmaDevice struct{}
type slurmConfig struct{}

const qemuProgram = "qemu-system-x86_64"

var errCaptured = errNoProgram
