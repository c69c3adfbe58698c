package session

import (
	"os"
	"syscall"

	"nearmetal/internal/guest"
)

// Caller returns a command for a VM that runs like a child of the calling process: with its user and groups, working
// directory, file mode mask and limits.
func Caller(args, env []string) guest.Exec {
	e := guest.Exec{Args: args, Env: env, DirOptional: true, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	e.Dir, _ = os.Getwd()
	if groups, err := os.Getgroups(); err == nil {
		for _, g := range groups {
			e.Groups = append(e.Groups, uint32(g))
		}
	}
	mask := uint32(umask())
	e.Umask = &mask
	e.Rlimits = guest.Limits()
	return e
}

// umask returns the file mode mask. No call reads it without setting it.
func umask() int {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return mask
}
