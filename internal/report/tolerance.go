package report

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
)

// Tolerance is the accepted loss of performance against the baseline, as a fraction of 1.
type Tolerance struct {
	Share  float64 `json:"share"`
	Reason string  `json:"reason"` // its origin
	given  bool
}

// paperTolerance is the tolerance of "Using NVIDIA ConnectX adapter cards for HPC and machine learning workloads on
// vSphere in DirectPath I/O mode" (2022), section 4: 4 of 48 cores are kept back.
const paperTolerance = 4.0 / 48

// ParseTolerance parses a tolerance from a flag: "8.3%", "0.083", "4/48"; "" stands for one that is computed for the
// run.
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

// toleranceOf returns the tolerance for v: the one given, or cores kept back over cores.
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

// Percent formats the tolerance in per cent.
func (g Tolerance) Percent() string { return strconv.FormatFloat(g.Share*100, 'f', 1, 64) + " %" }
