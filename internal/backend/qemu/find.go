package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"nearmetal/internal/backend/console"
)

// redHatPath is where Red Hat and its derivatives install QEMU, outside of PATH.
var redHatPath = "/usr/libexec/qemu-kvm"

const whatToInstall = "install qemu-system-x86 (Debian, Ubuntu), qemu-kvm (Red Hat) or qemu-system-x86-core (Fedora)"

// Find returns the absolute path of the QEMU program: want (a path or a name), or if it is empty the first of
// qemu-system-x86_64 in PATH and /usr/libexec/qemu-kvm. Its error names the package to install.
func Find(want string) (string, error) {
	if want != "" {
		p, err := exec.LookPath(want)
		if err != nil {
			return "", fmt.Errorf("QEMU %s: %w", want, plainError(err))
		}
		return filepath.Abs(p)
	}
	if p, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		return filepath.Abs(p)
	}
	if p, err := exec.LookPath(redHatPath); err == nil {
		return p, nil
	}
	return "", fmt.Errorf("no QEMU (qemu-system-x86_64 in PATH, or %s): %s, or name one with --qemu", redHatPath, whatToInstall)
}

// plainError removes the parts that a message already has: the path or the program's name.
func plainError(err error) error {
	var pe *os.PathError
	var ee *exec.Error
	switch {
	case errors.As(err, &pe):
		return pe.Err
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("no such program in PATH")
	case errors.As(err, &ee):
		return ee.Err
	}
	return err
}

// oneLine makes text that QEMU wrote suitable for a message: one line of bounded length, no control characters.
func oneLine(s string) string {
	return console.Harmless(strings.Join(strings.Fields(s), " "), 500)
}
