// Package check reports the properties of a host, or of a VM from the inside, that prevent native speed. Its rows are
// data: the source, the wanted value with its reason, the cost, and the fix. Run only reads, and returns a Report; the
// fixes of a row for a running kernel are a list of writes (Fixes), which package change makes and undoes.
//
// Everything is read below a root directory, so that a captured tree can represent any machine.
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"sort"
	"strings"
	"time"
)

// Status is the result of a row on a host.
type Status string

const (
	OK            Status = "ok"
	Warn          Status = "warn"           // it costs performance, or may
	Fail          Status = "fail"           // VMs do not run, or not at native speed
	Unknown       Status = "unknown"        // it could not be read
	NotApplicable Status = "not applicable" // this host has no such component
)

// Profile is the purpose of a host: it selects rows, and the wanted values of some of them.
type Profile string

const (
	VMHost    Profile = "vm-host"
	Guest     Profile = "guest"
	SlurmNode Profile = "slurm-node"
	RoCE      Profile = "roce"
	ESXi      Profile = "esxi" // a host that Options.Command reaches
)

// Profiles are all profiles of hosts and VMs with Linux, in the order in which they are printed.
var Profiles = []Profile{VMHost, Guest, SlurmNode, RoCE}

// Group is a part of a host.
type Group string

const (
	Firmware Group = "firmware"
	Cmdline  Group = "kernel command line"
	Power    Group = "CPU and power"
	Memory   Group = "memory"
	IOMMU    Group = "IOMMU and VFIO"
	RDMA     Group = "RDMA device and link"
	KVM      Group = "KVM"
	QEMU     Group = "QEMU"
	Limits   Group = "limits"
	Slurm    Group = "Slurm"
	InVM     Group = "in the VM"
	OnESXi   Group = "ESXi host"
)

// Needs states what has to happen before a remedy is in force.
type Needs string

const (
	Nothing Needs = "nothing"  // a write to a running kernel
	Restart Needs = "restart"  // of a service
	Reload  Needs = "reload"   // of a kernel module, with no VM running
	Reboot  Needs = "reboot"   // the kernel's command line, or a module that is built in
	Setup   Needs = "firmware" // the machine's or the card's firmware settings, and a reboot
	Other   Needs = "other"    // hardware, a package, another program's settings
)

// Row is one check. All fields but the functions are text for people; every sentence is self-contained. Rows that
// look alike are written out, each with its whole text, so that a row can be read and changed without another.
type Row struct {
	ID       string // GROUP.NAME; all rows of a group have the same GROUP
	Group    Group
	Title    string
	Reads    string // the files or the command that are read
	Wants    string
	Why      string
	Source   string // the document that recommends it
	Costs    string // the cost of another value
	Fix      string // commands, if some exist
	Needs    Needs
	Profiles []Profile
	// Conflict names advice that contradicts the row.
	Conflict string

	// Own: the value legitimately differs between hosts (GUIDs, free memory), so that hosts are compared by the
	// status only.
	Own bool

	look func(*facts) finding
	// writes returns the writes that fix the row on a running kernel; nil: none.
	writes func(*facts) []Write
	// load returns module parameters that fix the row when the module is next loaded.
	load func(*facts) []Write
	// commands returns the commands that fix the row in a shell of an ESXi host, with files of packages there.
	commands func(f *facts, bundles []string) []Command
}

// In reports whether the row belongs to a profile; every row except those for VMs or ESXi hosts only belongs to the
// profile "".
func (r *Row) In(p Profile) bool {
	for _, q := range r.Profiles {
		if q == p || p == "" && q != Guest && q != ESXi {
			return true
		}
	}
	return false
}

// Fixable reports whether check --fix can fix the row on some host.
func (r *Row) Fixable() bool { return r.writes != nil }

// finding is the result of a row on a host.
type finding struct {
	status Status
	found  string // one line
	items  []Item // its parts, if there are several
	fix    string // replaces the row's own fix, if the remedy is specific to this host
}

// Item is one of several objects that a row examined: a CPU list, a node, a device.
type Item struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
}

// Result is a row with its finding. Its JSON form is stable: fields are added, never changed.
type Result struct {
	ID       string `json:"id"`
	Group    Group  `json:"group"`
	Title    string `json:"title"`
	Status   Status `json:"status"`
	Found    string `json:"found"`
	Wanted   string `json:"wanted"`
	Items    []Item `json:"items,omitempty"`
	Reads    string `json:"reads"`
	Why      string `json:"why"`
	Source   string `json:"source"`
	Cost     string `json:"cost"`
	Fix      string `json:"fix"`
	Needs    Needs  `json:"needs"`
	Fixable  bool   `json:"fixable"` // check --fix would change something here
	Conflict string `json:"conflict,omitempty"`
}

// Version is the version of Report's JSON form.
const Version = 1

// Report is the result of Run, with the rows in their fixed order. It contains no times, and apart from free memory
// nothing that changes between runs on an idle host.
type Report struct {
	Version int            `json:"version"`
	Host    string         `json:"host"`
	Kernel  string         `json:"kernel,omitempty"`
	CPU     string         `json:"cpu,omitempty"`  // model
	Root    string         `json:"root,omitempty"` // captured tree that was read, "" for this host
	Profile Profile        `json:"profile,omitempty"`
	Summary map[Status]int `json:"summary"` // rows of each status
	Rows    []Result       `json:"rows"`
}

// Count returns the number of rows with a status.
func (r *Report) Count(s Status) int { return r.Summary[s] }

// Failed reports whether a row failed.
func (r *Report) Failed() bool { return r.Summary[Fail] > 0 }

// Options select the checks.
type Options struct {
	Root    string  // a directory with sys/ and proc/ in it; "" or "/": this host
	Profile Profile // "": all rows but those for the inside of a VM
	// Only are row IDs, or the words before the dot; empty: all.
	Only []string
	// Command runs a program and returns its standard output. nil: programs are run on this host, and none if Root is
	// a captured tree.
	Command func(ctx context.Context, name string, args ...string) ([]byte, error)
	// ESXi is the name of the ESXi host on which Command runs programs, for the profile ESXi.
	ESXi string
	// HugePageBytes is the size in bytes of the huge pages that Fixes makes on each node; 0: half of the node's
	// available memory.
	HugePageBytes uint64
}

// ErrNoRow is the error for an ID in Only that no row has.
type ErrNoRow struct {
	ID   string
	Near []string // all IDs and groups
}

func (e *ErrNoRow) Error() string { return fmt.Sprintf("no check is called %q", e.ID) }

// Rows returns all rows in their order. The slice is the caller's.
func Rows() []Row { return append([]Row(nil), rows...) }

// Names returns the IDs of all rows and the words before their dots, sorted.
func Names() []string {
	seen := map[string]bool{}
	for i := range rows {
		word, _, _ := strings.Cut(rows[i].ID, ".")
		seen[rows[i].ID], seen[word] = true, true
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Select returns the rows of a profile that only names; see Options.
func Select(p Profile, only []string) ([]Row, error) {
	names := map[string]bool{}
	for _, n := range Names() {
		names[n] = true
	}
	for _, o := range only {
		if !names[o] {
			return nil, &ErrNoRow{o, Names()}
		}
	}
	var list []Row
	for _, r := range rows {
		word, _, _ := strings.Cut(r.ID, ".")
		chosen := len(only) == 0 && r.In(p)
		for _, o := range only {
			chosen = chosen || o == r.ID || o == word && r.In(p)
		}
		if chosen {
			list = append(list, r)
		}
	}
	return list, nil
}

// Run checks a host. It fails if the root is not a directory or if no row has a name in o.Only; unreadable files are
// reported in a row's status.
func Run(ctx context.Context, o Options) (Report, error) {
	list, err := Select(o.Profile, o.Only)
	if err != nil {
		return Report{}, err
	}
	f, err := newFacts(ctx, o)
	if err != nil {
		return Report{}, err
	}
	defer f.close()
	r := Report{
		Version: Version, Profile: o.Profile,
		Host: f.line("/proc/sys/kernel/hostname"), Kernel: f.line("/proc/sys/kernel/osrelease"), CPU: f.cpuField("model name"),
	}
	if !f.live {
		r.Root = o.Root
	}
	if o.Profile == ESXi {
		r.Host, r.CPU, r.Kernel = printable(o.ESXi), "", ""
		if r.Kernel, err = f.esxiVersion(); err != nil {
			return r, fmt.Errorf("host %s: %w", o.ESXi, err)
		}
	}
	f.startSlow(list)
	for i := range list {
		row := &list[i]
		found := row.look(f)
		res := Result{
			ID: row.ID, Group: row.Group, Title: row.Title, Status: found.status, Found: found.found, Wanted: row.Wants,
			Items: found.items, Reads: row.Reads, Why: row.Why, Source: row.Source, Cost: row.Costs, Fix: row.Fix, Needs: row.Needs,
			Conflict: row.Conflict,
		}
		if found.fix != "" {
			res.Fix = found.fix
		}
		if row.commands != nil && (res.Status == Warn || res.Status == Fail) {
			var lines []string
			for _, c := range row.commands(f, nil) {
				lines = append(lines, c.Run)
			}
			if len(lines) > 0 {
				res.Fix = strings.Join(lines, "; ")
			}
		}
		if row.writes != nil && (res.Status == Warn || res.Status == Fail) {
			if res.Fixable = len(row.writes(f)) > 0; res.Fixable {
				res.Needs = Nothing
			}
		}
		r.Rows = append(r.Rows, res)
	}
	r.count()
	return r, ctx.Err()
}

// commandTimeout bounds each program that a row runs.
const commandTimeout = 10 * time.Second

// runCommand is Options.Command for this host.
func runCommand(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) { // in PATH; a path
		return nil, errNoProgram
	}
	return out, err
}

var errNoProgram = errors.New("not installed")

// Add adds rows to a report.
func (r *Report) Add(list ...Result) {
	r.Rows = append(r.Rows, list...)
	r.count()
}

// Keep keeps only the rows that only names; see Options.
func (r *Report) Keep(only []string) error {
	list, err := Select("", only)
	if err != nil {
		return err
	}
	guests, err := Select(Guest, only)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, row := range append(list, guests...) {
		wanted[row.ID] = true
	}
	var kept []Result
	for _, row := range r.Rows {
		if wanted[row.ID] {
			kept = append(kept, row)
		}
	}
	r.Rows = kept
	r.count()
	return nil
}

// count fills the summary in.
func (r *Report) count() {
	r.Summary = map[Status]int{OK: 0, Warn: 0, Fail: 0, Unknown: 0, NotApplicable: 0}
	for i := range r.Rows {
		r.Summary[r.Rows[i].Status]++
	}
}

// Sane checks a report from another source, a file, a host or a VM, and sanitizes its texts.
func (r *Report) Sane() error {
	const most = 4096 // rows, and items of a row
	if r.Version < 1 || r.Version > Version {
		return fmt.Errorf("a report of version %d; this nearmetal reads up to %d", r.Version, Version)
	}
	if len(r.Rows) > most {
		return fmt.Errorf("a report of %d rows", len(r.Rows))
	}
	for _, s := range []*string{&r.Host, &r.Kernel, &r.CPU, &r.Root} {
		*s = printable(*s)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		row.Items = row.Items[:min(most, len(row.Items))]
		for _, s := range []*string{&row.ID, (*string)(&row.Group), &row.Title, &row.Found, &row.Wanted, &row.Reads, &row.Why, &row.Source,
			&row.Cost, &row.Fix, (*string)(&row.Needs), &row.Conflict} {
			*s = printable(*s)
		}
		row.Status = known(row.Status)
		for k := range row.Items {
			row.Items[k].Name, row.Items[k].Found = printable(row.Items[k].Name), printable(row.Items[k].Found)
			row.Items[k].Status = known(row.Items[k].Status)
		}
	}
	r.count()
	return nil
}

// known returns a status, or Unknown for any other word.
func known(s Status) Status {
	switch s {
	case OK, Warn, Fail, NotApplicable:
		return s
	}
	return Unknown
}
