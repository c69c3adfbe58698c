//go:build !amd64

package host

import (
	"errors"
	"os"
	"time"
)

// TSCKHz measures the rate of this machine's time-stamp counter in kHz. This architecture has none.
func TSCKHz() (khz int, ok bool) { return 0, false }

func probeKVM(dev *os.File, limit time.Duration) error {
	return errors.New("nearmetal runs VMs on x86-64 only")
}
