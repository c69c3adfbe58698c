package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The secret that joins a job's nodes never stands in an environment or on a command line, which
// all programs of the user can read in /proc. The plugin hands it over in a pipe:
// slurm-boot has it as its standard input, a task's wrapper as the descriptor that VarSecretFD says.

const secretDigits = 64

// ReadSecret returns the secret that the plugin put into the pipe f, and closes it: 64 hexadecimal
// digits. From now on no other process of the user can read this one's memory or files in /proc.
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

// InheritedSecret is ReadSecret for the descriptor that VarSecretFD names; "" without one. The
// variable is gone when it returns.
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
