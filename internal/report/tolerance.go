package report

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
)

// Tolerance is the loss of performance against the baseline that is accepted, as a share of 1.
type Tolerance struct {
	Share  float64 `json:"share"`
	Reason string  `json:"reason"` // where it comes from
	given  bool
}

// paperTolerance is that of "Using NVIDIA ConnectX adapter cards for HPC and machine learning
// workloads on vSphere in DirectPath I/O mode" (2022), section 4: of 48 cores 4 are kept back.
const paperTolerance = 4.0 / 48

// ParseTolerance reads a tolerance from a flag: "8.3%", "0.083", "4/48"; "" is one that is computed for the run.
func ParseTolerance(s string) (Tolerance, error) {
	if s == "" {
		return Tolerance{}, nil
	}
	bad := fmt.Errorf("%q is not a share below 1, like 8.3%%, 0.083 or 4/48", s)
	text, divide := s, 1.0
	if t, ok := strings.CutSuffix(s, "%"); ok {
		text, divide = strings.TrimSpace(t), 100
	} else if a, b, ok := strings.Cut(s, "/"); ok {
		d, err := strconv.ParseFloat(b, 64)
		if err != nil || !(d > 0) {
			return Tolerance{}, bad
		}
		text, divide = a, d
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || !(v/divide < 1) {
		return Tolerance{}, bad
	}
	return Tolerance{Share: v / divide, Reason: "as given by --tolerance " + s, given: true}, nil
}

// toleranceOf returns the tolerance by which v is judged: the one given, or cores kept back over cores.
func toleranceOf(given Tolerance, host *record.Host, v *record.Variant) Tolerance {
	if given.given {
		return given
	}
	cores := host.Cores
	if v.Cores > 0 {
		cores = v.Cores + v.KeptBack
	}
	if v.KeptBack > 0 && cores > v.KeptBack {
		return Tolerance{Share: float64(v.KeptBack) / float64(cores),
			Reason: fmt.Sprintf("%d of %d cores are kept back for the host", v.KeptBack, cores)}
	}
	return Tolerance{Share: paperTolerance, Reason: "no core is kept back for the host, so that of VMware's ConnectX study: 4 of 48 cores"}
}

// Percent writes the tolerance's share.
func (g Tolerance) Percent() string { return strconv.FormatFloat(g.Share*100, 'f', 1, 64) + " %" }
