package run

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/launch"
)

// channelsLog makes each rank over nearmetal's provider log at its end only the channels that it used
// (docs/mpi-troubleshooting.md).
var channelsLog = []string{"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl"}

// channelsLine matches that line: peers in its own VM, in others, and over the network.
var channelsLine = regexp.MustCompile(`channels used: (\d{1,9}) ranks of this VM, [^;\n]*; (\d{1,9}) ranks of other VMs, [^;\n]*; (\d{1,9}) ranks over the core provider`)

// channelsOf adds up the channels in the error output of a job's ranks; nil if none is reported.
func channelsOf(errs []byte) *record.Channels {
	var c *record.Channels
	for _, m := range channelsLine.FindAllSubmatch(errs, -1) {
		if c == nil {
			c = &record.Channels{}
		}
		c.Ranks++
		for i, n := range []*int{&c.SameVM, &c.OtherVMs, &c.Network} {
			v, _ := strconv.Atoi(string(m[i+1])) // only digits
			*n += v
		}
	}
	return c
}

// overProvider reports whether a variant's messages must be sent over nearmetal's provider.
func (v *Variant) overProvider() bool { return strings.HasSuffix(v.MPI.Name, "ivshmem") }

// noteChannels records the channels reported by an MPI program's ranks. It fails for a variant that should use the
// provider and has not.
func (r *runner) noteChannels(x *experiment, v *Variant, errs []byte) error {
	if x.def.Launch != "mpi" {
		return nil
	}
	c := channelsOf(errs)
	if c == nil {
		if v.overProvider() {
			return errors.New("its messages did not take nearmetal's provider: no rank said which channels it used")
		}
		return nil
	}
	c.Case, c.Variant = x.names[0], v.Label
	at := slices.IndexFunc(r.record.Channels, func(h record.Channels) bool { return h.Case == c.Case && h.Variant == c.Variant })
	if at < 0 {
		r.record.Channels = append(r.record.Channels, *c)
	} else {
		r.record.Channels[at] = *c
	}
	return nil
}

// natively returns the environment of a program on this host: the caller's, overridden by over, without the variables
// by which `eval $(nearmetal env)` sends ranks into VMs.
func natively(over []string) []string {
	environ := os.Environ()
	ours := launch.Ours(environ)
	environ = slices.DeleteFunc(environ, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name)
	})
	return append(environ, over...)
}
