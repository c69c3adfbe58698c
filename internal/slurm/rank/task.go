package rank

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// task is the description of a task in Slurm's environment.
type task struct {
	job, step string
	rank      int   // SLURM_PROCID
	size      int   // SLURM_NTASKS of the step
	node      int   // SLURM_NODEID
	local     int   // SLURM_LOCALID
	tasks     []int // per node of the step
	parent    int   // slurmstepd
}

// maxTasks bounds the tasks of a step.
const maxTasks = 1 << 22

// readTask reads the task from the environment; get returns the value of a variable.
func readTask(get func(string) string) (*task, error) {
	t := &task{job: get("SLURM_JOB_ID"), step: get("SLURM_STEP_ID"), parent: os.Getppid()}
	var err error
	number := func(name string, to *int) {
		n, e := strconv.ParseUint(get(name), 10, 31)
		if e != nil && err == nil {
			err = fmt.Errorf("%s=%q is not what Slurm sets", name, get(name))
		}
		*to = int(n)
	}
	number("SLURM_PROCID", &t.rank)
	number("SLURM_LOCALID", &t.local)
	number("SLURM_NODEID", &t.node)
	number("SLURM_STEP_NUM_TASKS", &t.size)
	if err != nil {
		return nil, err
	}
	if t.tasks, err = tasksPerNode(get("SLURM_STEP_TASKS_PER_NODE")); err != nil {
		return nil, err
	}
	if t.node >= len(t.tasks) || t.local >= t.tasks[t.node] {
		return nil, fmt.Errorf("task %d of node %d is not among the step's tasks %q", t.local, t.node, get("SLURM_STEP_TASKS_PER_NODE"))
	}
	return t, nil
}

// tasksPerNode parses "2(x3),1" as 2, 2, 2, 1.
func tasksPerNode(text string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(text, ",") {
		count, times := part, 1
		if n, rest, ok := strings.Cut(part, "(x"); ok {
			x, err := strconv.ParseUint(strings.TrimSuffix(rest, ")"), 10, 31)
			if err != nil || !strings.HasSuffix(rest, ")") || x == 0 {
				return nil, fmt.Errorf("tasks per node: %q is not what Slurm sets", text)
			}
			count, times = n, int(x)
		}
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil || n > maxTasks || times > maxTasks || len(list)+times > maxTasks {
			return nil, fmt.Errorf("tasks per node: %q is not what Slurm sets", text)
		}
		for range times {
			list = append(list, int(n))
		}
	}
	return list, nil
}

// vm returns the number of the VM, of vms on this node, that the task runs in: consecutive tasks share a VM.
func (t *task) vm(vms int) int { return vmOf(t.local, t.tasks[t.node], vms) }

// vmOf distributes a node's tasks over its VMs in blocks whose sizes differ by at most one.
func vmOf(local, tasks, vms int) int { return local * vms / max(tasks, 1) }
