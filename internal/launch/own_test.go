package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestOwnLauncher: without the variables of Env, a launcher that gets the remote shell and the hosts by its own
// options starts its ranks in the VMs.
func TestOwnLauncher(t *testing.T) {
	lab(t, func(t *testing.T, l *theLab) {
		sh(t, "ip link add public type veth peer name other && ip addr add 192.0.2.2/24 dev public && ip link set public up && ip link set other up")
		agent := filepath.Join(l.dir, AgentName)
		l.write(t, "own.openmpi", Hostfile, "openmpi")
		l.write(t, "own.mpich", Hostfile, "mpich")
		for _, m := range libraries(t) {
			args := []string{m.launcher, "-launcher-exec", agent, "-f", filepath.Join(l.dir, "own.mpich")}
			switch {
			case m.library == OpenMPI && m.major == 4: // two words, as in "nearmetal rsh"
				args = []string{m.launcher, "--mca", "plm_rsh_agent", "env " + agent, "--host", "vm0:2,vm1:2"}
			case m.library == OpenMPI:
				args = []string{m.launcher, "--prtemca", "plm_ssh_agent", agent, "--hostfile", filepath.Join(l.dir, "own.openmpi")}
			}
			t.Run(m.name, func(t *testing.T) {
				program := m.build(t, l.dir)
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, args[0], append(args[1:], "-n", "4", program)...)
				cmd.Env = append(os.Environ(), "NEARMETAL_CLUSTER=lab", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
					"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")
				if m.leave {
					cmd.Env = append(cmd.Env, "RANKS_LEAVE=1")
				}
				cmd.WaitDelay = 5 * time.Second
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				err := cmd.Run()
				if want := map[string]int{"vm0": 2, "vm1": 2}; err != nil || fmt.Sprint(where(out.String())) != fmt.Sprint(want) {
					t.Errorf("%v, %v, %v\n%s", ctx.Err(), err, where(out.String()), out.String())
				}
			})
		}
	})
}
