package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/slurm/conf"
)

// askTime bounds one query to slurmctld. Slurm's own limit is MessageTimeout, ten seconds by default.
const askTime = 60 * time.Second

// Given queries slurmctld, through scontrol, for a job's allocation on a host: its cores and its memory in bytes (0:
// not limited). The library of Slurm 24.11 no longer provides it. The error is for the user.
func Given(job, host string) (cores string, memory uint64, err error) {
	text, err := scontrol("--details", "show", "job", job)
	if err != nil {
		return "", 0, err
	}
	cpus, memory, err := parseGiven(text, job, host)
	if err != nil {
		return "", 0, err
	}
	if text, err = scontrol("show", "node", host); err != nil {
		return "", 0, err
	}
	threads := 1
	if m := threadsPerCore.FindStringSubmatch(text); m != nil {
		threads, _ = strconv.Atoi(m[1])
	}
	cores, err = CoresOf(cpus, threads)
	return cores, memory, err
}

var (
	threadsPerCore = regexp.MustCompile(`(?m)^ .*\bThreadsPerCore=(\d{1,4})$`)
	recordOf       = regexp.MustCompile(`(?m)^JobId=(\d+) `)
	givenOn        = regexp.MustCompile(`(?m)^ +Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d{1,15}) GRES=`)
)

// parseGiven returns a host's CPUs and memory, in bytes, from scontrol's output for a job. That output also contains
// texts of the user, such as the job's name; therefore it is an error if two records match.
func parseGiven(text, job, host string) (cpus string, memory uint64, err error) {
	starts := recordOf.FindAllStringSubmatchIndex(text, -1)
	found := 0
	for i, at := range starts {
		if text[at[2]:at[3]] != job {
			continue // another component of a heterogeneous job
		}
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		for _, m := range givenOn.FindAllStringSubmatch(text[at[0]:end], -1) {
			names, err := conf.Expand(m[1])
			if err != nil {
				return "", 0, fmt.Errorf("scontrol's list of nodes: %w", err)
			}
			for _, name := range names {
				if name != host {
					continue
				}
				found++
				mib, _ := strconv.ParseUint(m[3], 10, 64)
				cpus, memory = m[2], mib<<20
			}
		}
	}
	switch found {
	case 0:
		return "", 0, fmt.Errorf("slurmctld does not say which CPUs of %s job %s has", host, job)
	case 1:
		return cpus, memory, nil
	}
	return "", 0, fmt.Errorf("scontrol says %d times which CPUs of %s job %s has: take out what looks like its lines from the job's name and comments", found, host, job)
}

// scontrol returns the output of scontrol, which it finds in PATH.
func scontrol(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n"); line != "" {
			err = errors.New(line)
		}
		return "", fmt.Errorf("cannot ask slurmctld for the job's resources: scontrol: %w", err)
	}
	return string(out), nil
}
