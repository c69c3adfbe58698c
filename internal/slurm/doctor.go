package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Results of a row.
const (
	StatusOK      = "ok"
	StatusWarn    = "warn"
	StatusFail    = "fail"
	StatusUnknown = "unknown"
)

// Finding is the doctor's result for one row.
type Finding struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Found  string `json:"found"`           // the current state, in one line
	Where  string `json:"where,omitempty"` // file:line of the setting, if there is one
	Why    string `json:"why,omitempty"`   // what fails without it; empty if the row is ok
	Fix    []Fix  `json:"fix,omitempty"`
}

// Fix is a line to add or to change in a file, or (without File) a command.
type Fix struct {
	File string `json:"file,omitempty"`
	Line string `json:"line"`
}

// MarshalJSON also writes the fix under its old name, mend, until 0.2.0.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // escaping is up to the outer encoder
	err := e.Encode(struct {
		plain
		Mend []Fix `json:"mend,omitempty"`
	}{plain(f), f.Fix})
	return b.Bytes(), err
}

// row is one check of the doctor.
type row struct {
	id, why string
	look    func(*Site) Finding
}

// rows are in the order of the output: essential requirements come first.
var rows = []row{
	{"version", "the plugin is made and tested for Slurm 22.05 and later", lookVersion},
	{"plugin", "without the plugin there is no --vm", lookPlugin},
	{"prolog-flags", "VMs boot in the job's extern step, and steps wait for them: Contain makes the step, Alloc and DeferBatch make the wait", lookPrologFlags},
	{"select", "memory and cores are what a plan may use, so both have to be allocated; GRES with types need cons_tres", lookSelect},
	{"gres-types", "VFs and the region are generic resources, so that no two jobs get the same", lookGresTypes},
	{"gres-node", "what the node offers stands in slurm.conf too", lookGresNode},
	{"gres-conf", "gres.conf says which files the VFs are, and which cores are near them", lookGresConf},
	{"job-submit", "--vm-vf and --vm-region add their GRES at submission by job_submit.lua; without it users add --gres themselves", lookJobSubmit},
	{"proctrack", "the job's processes are found and ended by its cgroup", lookProctrack},
	{"task", "ranks and VMs keep to the cores of the job", lookTask},
	{"cgroup", "a job's VMs must not take cores, memory or VFs of others", lookCgroup},
	{"memlock", "a VM with a VF locks all its memory: a limit lower than that is a VM that does not start", lookMemlock},
	{"mpi", "an MPI program started by srun finds its ranks by PMI", lookMpi},
	{"fences", "ranks of Open MPI over UCX wait for ever at their end if those of other nodes leave a fence of PMIx before them", lookFences},
	{"accounting", "sstat and sacct show what the VMs took", lookAccounting},
	{"kvm", "without KVM the VMs are emulated: good for tests, useless for speed", lookKVM},
}

// Doctor runs all checks.
func (s *Site) Doctor() []Finding {
	var out []Finding
	for _, r := range rows {
		f := r.look(s)
		f.ID = r.id
		if f.Status != StatusOK {
			f.Why = r.why
		}
		out = append(out, f)
	}
	return out
}

// Count returns the number of findings with a status.
func Count(findings []Finding, status string) int {
	n := 0
	for _, f := range findings {
		if f.Status == status {
			n++
		}
	}
	return n
}

func okf(format string, args ...any) Finding {
	return Finding{Status: StatusOK, Found: fmt.Sprintf(format, args...)}
}

func warnf(format string, args ...any) Finding {
	return Finding{Status: StatusWarn, Found: fmt.Sprintf(format, args...)}
}

func failf(format string, args ...any) Finding {
	return Finding{Status: StatusFail, Found: fmt.Sprintf(format, args...)}
}

func unknownf(format string, args ...any) Finding {
	return Finding{Status: StatusUnknown, Found: fmt.Sprintf(format, args...)}
}

// at sets the position of a finding.
func (f Finding) at(where string) Finding { f.Where = where; return f }

// add adds the lines of a file that fix the finding.
func (f Finding) add(file string, lines ...string) Finding {
	for _, l := range lines {
		f.Fix = append(f.Fix, Fix{file, l})
	}
	return f
}

// run adds the commands that fix the finding.
func (f Finding) run(commands ...string) Finding { return f.add("", commands...) }
