package rank

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/session"
)

// joinBound is the time in which the VMs of a step's nodes must reach each other once they run.
const joinBound = 2 * time.Minute

// joined waits until the ranks of an MPI step over several nodes can reach each other, either by the job's overlay or
// by the site's bridge.
func (t *task) joined(ctx context.Context, r *state.Record, w io.Writer) error {
	mpi := os.Getenv("PMI_FD") != "" || os.Getenv("PMIX_RANK") != ""
	if !mpi || len(t.tasks) < 2 || r.Spec.Network.Type == "bridge" {
		return nil
	}
	if len(r.Overlay) == 0 {
		return fmt.Errorf("the VMs of %d nodes have no network between them for MPI: network.type of the cluster file is none, or slurmctld "+
			"did not tell the nodes of each other (slurmd's log says why)", len(t.tasks))
	}
	ctx, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	owner, err := client.Connect(ctx, r.Name)
	if err != nil {
		return err
	}
	defer owner.Close()
	if err := owner.AwaitJoined(ctx); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, devicesBound)
	defer cancel()
	why, err := owner.AwaitReached(ctx)
	if why != "" && t.local == 0 {
		fmt.Fprintln(w, "nearmetal:", why)
	}
	return err
}

// devicesBound is how long a step waits for the devices of its VMs to reach each other. After that it starts
// nevertheless, and reports which do not.
const devicesBound = 20 * time.Second

// relayPMI makes the process manager's end, which Slurm passed to this task, reachable in the VM. It returns the
// environment, or the connection (guest.Exec), by which a rank reaches it. close ends the relay.
func relayPMI(ctx context.Context, vm *guest.Client, t *task, vms int, env []string) (out []string, connect string, close func(), err error) {
	switch {
	case os.Getenv("PMI_FD") != "":
		connect, close, err = relayPMI1(ctx, vm, t, vms)
		env = without(env, "PMI_FD=")
		if vms > 1 {
			// Intel MPI counts Slurm's nodes instead, which are not its VMs.
			env = session.Environment(env, []string{"I_MPI_NODEMAP_ALGORITHM=pmi_process_mapping"})
		}
		return env, connect, close, err
	case os.Getenv("PMIX_RANK") != "":
		out, close, err = relayPMIx(ctx, vm, t, vms, env)
		return out, "", close, err
	}
	return env, "", func() {}, nil
}

// relayPMI1 relays PMI-1, which MPICH and its derivatives use with srun's --mpi=pmi2. As in a native run, the rank
// gets an open descriptor (PMI_FD): a connection to a port in the VM, which is relayed to slurmstepd's descriptor.
// connect is for guest.Exec.
func relayPMI1(ctx context.Context, vm *guest.Client, t *task, vms int) (connect string, close func(), err error) {
	fd, err := strconv.ParseUint(os.Getenv("PMI_FD"), 10, 16)
	if err != nil {
		return "", nil, fmt.Errorf("PMI_FD=%q is not a descriptor", os.Getenv("PMI_FD"))
	}
	pm := os.NewFile(uintptr(fd), "PMI of slurmstepd")
	if pm == nil {
		return "", nil, errors.New("slurmstepd passed no PMI descriptor")
	}
	var once sync.Once
	l, err := vm.ListenTCP(ctx, "", "127.0.0.1:0", func(c net.Conn) {
		once.Do(func() { // a second connection is not from the rank
			pmiSession(c, pm, t.size, vms)
		})
	})
	if err != nil {
		return "", nil, fmt.Errorf("PMI: %w", err)
	}
	return "PMI_FD " + l.Addr, func() {
		l.Close()
		pm.Close() // closed fully, because slurmd treats a half-closed one as an endless message
	}, nil
}

// maxPMILine bounds a line of PMI-1, in bytes: MPICH's own bound is 64 KiB (PMIU_MAXLINE and the maximum length of a
// value).
const maxPMILine = 128 << 10

// pmiSession relays between a rank and its process manager until either side ends.
func pmiSession(rank net.Conn, pm io.ReadWriteCloser, size, vms int) {
	done := make(chan struct{}, 2)
	go func() {
		io.Copy(pm, rank)
		pm.Close()
		done <- struct{}{}
	}()
	go func() {
		answers(rank, pm, size, vms)
		rank.Close()
		done <- struct{}{}
	}()
	<-done
	<-done
}

// answers relays the lines of the process manager to the rank, and rewrites the mapping of ranks to nodes if a node
// has several VMs.
func answers(rank io.Writer, pm io.Reader, size, vms int) {
	out := bufio.NewReaderSize(pm, maxPMILine)
	for {
		line, err := out.ReadString('\n')
		if vms > 1 && strings.Contains(line, "(vector,") {
			if changed, err := rewriteMapping(line, size, vms); err == nil {
				line = changed
			}
		}
		if len(line) > 0 {
			if _, err := io.WriteString(rank, line); err != nil {
				return
			}
		}
		if err != nil || len(line) > maxPMILine {
			return
		}
	}
}

// pmixPort matches the port of a PMIx server in a URI, "NS.RANK;tcp4://127.0.0.1:PORT".
var pmixPort = lazyregexp.New(`tcp4://127\.0\.0\.1:(\d{1,5})`)

// relayPMIx makes slurmstepd's PMIx server, which listens on the node's loopback, reachable on the VM's loopback: it
// opens one port in the VM for each port of the server.
func relayPMIx(ctx context.Context, vm *guest.Client, t *task, vms int, env []string) ([]string, func(), error) {
	ports := map[string]*guest.Listener{}
	stop := func() {
		for _, l := range ports {
			l.Close()
		}
	}
	var over []string
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "PMIX_SERVER_URI") {
			continue
		}
		m := pmixPort().FindStringSubmatchIndex(value)
		if m == nil {
			continue
		}
		port := value[m[2]:m[3]]
		if ports[port] == nil {
			l, err := vm.ListenTCP(ctx, "", "127.0.0.1:0", func(c net.Conn) { forward(c, "127.0.0.1:"+port) })
			if err != nil {
				stop()
				return nil, nil, fmt.Errorf("PMIx: %w", err)
			}
			ports[port] = l
		}
		over = append(over, name+"="+value[:m[0]]+"tcp4://"+ports[port].Addr+value[m[1]:])
	}
	if len(ports) == 0 {
		return nil, nil, errors.New("PMIx: slurmstepd's server has no TCP port on the loopback")
	}
	if err := makeSessionDir(ctx, vm, t); err != nil {
		stop()
		return nil, nil, err
	}
	// The server's shared memory is not available in the VM.
	over = append(over, "PMIX_GDS_MODULE=hash", "PMIX_MCA_gds=hash")
	if vms > 1 {
		over = append(over, separateVMs(env)...)
	}
	return session.Environment(env, over), stop, nil
}

// separateVMs returns the variables that Open MPI needs in env if a node has several VMs. The PMIx server treats the
// VMs as one node, so that all transports over shared memory between ranks must be excluded. The user's OMPI_MCA_pml
// is kept, because no pml uses shared memory directly: cm uses the region and devices (internal/launch: fabric), ob1
// uses the transports of btl, and UCX compares the peers' kernels.
func separateVMs(env []string) []string {
	pml, osc := "cm,ob1", "^sm,ucx"
	own := false
	for _, v := range env {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "OMPI_MCA_pml":
			own = value != ""
			if !strings.HasPrefix(value, "^") && strings.Contains(value, "ucx") {
				osc = "^sm"
			}
		case "OMPI_MCA_pml_ucx_priority": // UCX is preferred (internal/launch: ucx)
			pml, osc = "ucx,cm,ob1", "^sm"
		}
	}
	over := []string{"OMPI_MCA_btl=tcp,self", "OMPI_MCA_osc=" + osc, "OMPI_MCA_coll=^sm,han,xhc,smcuda"}
	if !own {
		over = append(over, "OMPI_MCA_pml="+pml)
	}
	return over
}

// forward relays a connection from the VM to an address on this host.
func forward(c net.Conn, addr string) {
	h, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer h.Close()
	done := make(chan struct{}, 2)
	copyHalf := func(to, from net.Conn) {
		io.Copy(to, from)
		if w, ok := to.(interface{ CloseWrite() error }); ok {
			w.CloseWrite()
		}
		done <- struct{}{}
	}
	go copyHalf(h, c)
	go copyHalf(c, h)
	<-done
	<-done
}
