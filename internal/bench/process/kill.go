package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// KillSession kills every process of a session and waits until they have ended, at most a second: a process in an
// uninterruptible system call ends later. An MPI launcher's ranks have process groups of their own, but its session.
func KillSession(session int) {
	deadline := time.Now().Add(time.Second)
	for pause := time.Millisecond; ; pause *= 2 {
		left := members(session)
		if len(left) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range left {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(min(pause, 50*time.Millisecond))
	}
}

// members returns the living processes of a session.
func members(session int) []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// PID (NAME) STATE PPID PGRP SESSION …: the name may contain anything but ends at the last ).
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 4 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
			continue
		}
		if sid, err := strconv.Atoi(string(fields[3])); err == nil && sid == session {
			out = append(out, pid)
		}
	}
	return out
}
