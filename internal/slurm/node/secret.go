package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The secret that joins a job's nodes never appears in an environment or on a command line, which all programs of the
// user can read in /proc. The plugin passes it in a pipe: as the standard input of slurm-boot, and as the descriptor
// in VarSecretFD of a task's wrapper.

const secretDigits = 64

// ReadSecret reads the secret from the plugin's pipe f, and closes f: 64 hexadecimal digits. Afterwards no other
// process of the user can read this process's memory or files in /proc.
func ReadSecret(f *os.File) (string, error) {
	defer f.Close()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, secretDigits+1))
	if err != nil {
		return "", fmt.Errorf("the job's secret: %w", err)
	}
	if len(b) != secretDigits {
		return "", errors.New("the plugin handed over no secret that joins the job's nodes: this program and it must be of one version")
	}
	return string(b), nil
}

// InheritedSecret is ReadSecret for the descriptor in VarSecretFD; it returns "" without one. It unsets the variable.
func InheritedSecret() (string, error) {
	text, ok := os.LookupEnv(VarSecretFD)
	if !ok {
		return "", nil
	}
	os.Unsetenv(VarSecretFD)
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return "", fmt.Errorf("%s=%q is not a descriptor", VarSecretFD, text)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return "", fmt.Errorf("%s=%d is not a pipe", VarSecretFD, fd)
	}
	return ReadSecret(os.NewFile(uintptr(fd), "the job's secret"))
}
