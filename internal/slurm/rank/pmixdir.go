package rank

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/guest"
	"nearmetal/internal/session"
)

// Open MPI creates its files in the directory that Slurm's PMIx server names, below TmpFS of slurm.conf (Slurm,
// src/plugins/mpi/pmix: pmixp_info.c). In a VM it does not exist, and its parents may belong to another user.
// Therefore it is created there by the VM's root, for the user.

// slurmConfs returns the possible paths of slurm.conf: from the daemons' environment, installed, or fetched by
// slurmd.
func slurmConfs() []string {
	return []string{os.Getenv("SLURM_CONF"), "/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"}
}

// tmpFS returns TmpFS of a slurm.conf, with %h and %n replaced by the host and the node; "/tmp" if it is not set.
func tmpFS(conf io.Reader, host, node string) string {
	dir := "/tmp"
	sc := bufio.NewScanner(io.LimitReader(conf, 8<<20))
	for sc.Scan() {
		line, _, _ := strings.Cut(sc.Text(), "#")
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), "TmpFS") {
			dir = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return strings.NewReplacer("%h", host, "%n", node).Replace(dir)
}

// makeSessionDir creates the step's directory of PMIx in the VM.
func makeSessionDir(ctx context.Context, vm *guest.Client, t *task) error {
	top := "/tmp"
	for _, path := range slurmConfs() {
		if path == "" {
			continue
		}
		if f, err := os.Open(path); err == nil {
			host, _ := os.Hostname()
			short, _, _ := strings.Cut(host, ".")
			top = tmpFS(f, short, os.Getenv("SLURMD_NODENAME"))
			f.Close()
			break
		}
	}
	dir := filepath.Join(top, fmt.Sprintf("spmix_appdir_%d_%s.%s", os.Getuid(), t.job, t.step))
	e := guest.Exec{
		Args: []string{"/bin/sh", "-c", `mkdir -p "$1" && chown "$2" "$1" && chmod 700 "$1"`, "sh", dir, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())},
		Env:  []string{"PATH=/usr/bin:/bin"}, NoStdin: true,
	}
	var said strings.Builder
	st, err := session.Run(ctx, vm, e, session.Streams{Out: io.Discard, Err: &said}, nil)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("PMIx: cannot make %s: %s", dir, strings.TrimSpace(said.String()))
	}
	return err
}
