// Package hugepage reserves huge pages of a host's NUMA nodes for the jobs of a batch system: made before a job,
// returned after it. It first uses the administrator's own free pages and makes the rest (Linux,
// Documentation/admin-guide/mm/hugetlbpage.rst, nr_hugepages of each node). It frees exactly the pages that it made,
// so that the administrator's stay, even if the administrator changes their number in the meantime. Each job is a
// transaction of package change.
package hugepage

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/change"
	"nearmetal/internal/journal"
	"nearmetal/internal/lazyregexp"
)

// Need is a number of huge pages of one size on one NUMA node.
type Need struct {
	Node      int    // the kernel's node number
	PageBytes uint64 // 2 MiB, 1 GiB
	Pages     int
}

// Job is a job for which pages are reserved.
type Job struct {
	Name string // letters, digits, '.', '_' and '-'
	// State is the directory in which the batch system's plugin keeps a directory with the job's name while the job
	// exists. Two batch systems on a host may use the same job names.
	State string
}

// keptFor is the prefix of the name of a job's transaction.
const keptFor = "pages-"

var jobName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,69}$`)

// transaction returns the name of the job's transaction.
func (j Job) transaction() string {
	h := fnv.New32a()
	h.Write([]byte(filepath.Clean(j.State)))
	return fmt.Sprintf("%s%s:%08x", keptFor, j.Name, h.Sum32())
}

// kind is a change of a pool's count from before (pages) to before + made; pages of it are the job's. While its
// transaction is open its undo writes before. Once it is committed others may change the pool; Return then determines
// the new count.
const kind = "huge-pages"

// kindBack is a change of a count from one value to another, once: if it has neither value, the administrator has set
// it since, and it is not changed.
const kindBack = "huge-pages-back"

func init() {
	journal.Register(kindBack, validBack, undoBack, func(c journal.Change) string {
		return fmt.Sprintf("%s = %s", c.Args["path"], c.Args["to"])
	})
	journal.Register(kind, valid, undo, func(c journal.Change) string {
		return fmt.Sprintf("%s huge pages of %s (%s made)", c.Args["pages"], filepath.Dir(c.Args["path"]), c.Args["made"])
	})
}

var poolPath = lazyregexp.New(`^/sys/(devices/system/node/node[0-9]{1,4}|kernel/mm)/hugepages/hugepages-[0-9]{1,9}kB/nr_hugepages$`)

func valid(c journal.Change) error {
	if s := c.Args["state"]; !filepath.IsAbs(s) || !jobName().MatchString(c.Args["job"]) {
		return fmt.Errorf("%.70q in %.200q is not a job", c.Args["job"], s)
	}
	return validCounts(c, "before", "pages", "made")
}

// validCounts checks the pool of a change, and its numbers of pages.
func validCounts(c journal.Change, names ...string) error {
	if !poolPath().MatchString(c.Args["path"]) {
		return fmt.Errorf("%.80q is not a count of huge pages", c.Args["path"])
	}
	if r := c.Args["root"]; r != "" && (!filepath.IsAbs(r) || filepath.Clean(r) != r) {
		return fmt.Errorf("%q is not a clean absolute path", r)
	}
	for _, name := range names {
		if _, err := strconv.ParseUint(c.Args[name], 10, 31); err != nil {
			return fmt.Errorf("%s: %.40q is not a number of pages", name, c.Args[name])
		}
	}
	return nil
}

func undo(c journal.Change) (bool, error) {
	if !current(c) {
		return false, nil
	}
	p := pool{c.Args["root"], filepath.Dir(c.Args["path"])}
	now, err := p.standing()
	if os.IsNotExist(err) {
		return false, nil
	}
	before := number(c, "before")
	if err != nil || now <= before || now > before+number(c, "made") {
		return false, err // not made, or since set by the administrator
	}
	return true, journal.WriteValue(p.file("nr_hugepages"), c.Args["before"])
}

// back returns the change of a count from one value to another.
func (p pool) back(from, to int) journal.Change {
	args := map[string]string{"path": p.path(), "from": strconv.Itoa(from), "to": strconv.Itoa(to)}
	if p.root != "" {
		args["root"] = p.root
	} else {
		args["boot"] = journal.BootID()
	}
	return journal.Change{Kind: kindBack, Args: args}
}

func validBack(c journal.Change) error { return validCounts(c, "from", "to") }

func undoBack(c journal.Change) (bool, error) {
	if !current(c) {
		return false, nil
	}
	p := pool{c.Args["root"], filepath.Dir(c.Args["path"])}
	now, err := p.standing()
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil || now != number(c, "from") || now == number(c, "to") {
		return false, err
	}
	return true, journal.WriteValue(p.file("nr_hugepages"), c.Args["to"])
}

// current reports whether a change is from this boot: pages do not survive a reboot.
func current(c journal.Change) bool {
	return c.Args["boot"] == "" || c.Args["boot"] == journal.BootID()
}

func number(c journal.Change, name string) int {
	n, _ := strconv.Atoi(c.Args[name])
	return n
}

// pool is the huge pages of one size on a node.
type pool struct{ root, dir string }

// poolOf returns the pool of a need. A kernel without NUMA has one for the host.
func poolOf(root string, n Need) pool {
	name := fmt.Sprintf("hugepages-%dkB", n.PageBytes>>10)
	node := pool{root, fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/%s", n.Node, name)}
	if _, err := os.Stat(node.file("nr_hugepages")); err != nil && n.Node == 0 {
		if _, err := os.Stat(filepath.Join(root, "/sys/devices/system/node/node0")); err != nil {
			return pool{root, "/sys/kernel/mm/hugepages/" + name}
		}
	}
	return node
}

func (p pool) file(name string) string { return filepath.Join(p.root, p.dir, name) }

func (p pool) path() string { return p.dir + "/nr_hugepages" }

func (p pool) count(name string) (int, error) {
	text, err := journal.ReadValue(p.file(name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %.40q is not a number of pages", p.file(name), text)
	}
	return int(n), nil
}

// standing returns the number of persistent pages, without those on demand.
func (p pool) standing() (int, error) { return p.count("nr_hugepages") }

// promised returns the jobs' pages of a pool, and how many of them were made for the jobs.
func (p pool) promised(list []change.Info) (pages, made int) {
	for _, i := range list {
		for _, c := range i.Changes {
			if c.Kind == kind && current(c) && c.Args["path"] == p.path() && c.Args["root"] == p.root {
				pages += number(c, "pages")
				made += number(c, "made")
			}
		}
	}
	return pages, made
}

func (p pool) change(job Job, before, pages, made int) journal.Change {
	args := map[string]string{"path": p.path(), "job": job.Name, "state": filepath.Clean(job.State),
		"before": strconv.Itoa(before), "pages": strconv.Itoa(pages), "made": strconv.Itoa(made)}
	if p.root != "" {
		args["root"] = p.root
	} else {
		args["boot"] = journal.BootID()
	}
	return journal.Change{Kind: kind, Args: args}
}

// lock is held while counts are read and written, so that of two jobs the second sees the first's pages.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "hugepages.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}
