package report

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
)

// Gauge is the loss of performance against the baseline that is accepted, as a share of 1.
type Gauge struct {
	Share  float64 `json:"share"`
	Reason string  `json:"reason"` // where it comes from
	given  bool
}

// seedGauge is that of "Using NVIDIA ConnectX adapter cards for HPC and machine learning
// workloads on vSphere in DirectPath I/O mode" (2022), section 4: of 48 cores 4 are kept back.
const seedGauge = 4.0 / 48

// ParseGauge reads a gauge from a flag: "8.3%", "0.083", "4/48"; "" gives one that is computed for the run.
func ParseGauge(s string) (Gauge, error) {
	if s == "" {
		return Gauge{}, nil
	}
	bad := fmt.Errorf("%q is not a share below 1, like 8.3%%, 0.083 or 4/48", s)
	text, divide := s, 1.0
	if t, ok := strings.CutSuffix(s, "%"); ok {
		text, divide = strings.TrimSpace(t), 100
	} else if a, b, ok := strings.Cut(s, "/"); ok {
		d, err := strconv.ParseFloat(b, 64)
		if err != nil || !(d > 0) {
			return Gauge{}, bad
		}
		text, divide = a, d
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || !(v/divide < 1) {
		return Gauge{}, bad
	}
	return Gauge{Share: v / divide, Reason: "as given by --gauge " + s, given: true}, nil
}

// gaugeOf gives the gauge by which v is judged: the one given, or cores kept back over cores.
func gaugeOf(given Gauge, host *record.Host, v *record.Variant) Gauge {
	if given.given {
		return given
	}
	cores := host.Cores
	if v.Cores > 0 {
		cores = v.Cores + v.KeptBack
	}
	if v.KeptBack > 0 && cores > v.KeptBack {
		return Gauge{Share: float64(v.KeptBack) / float64(cores),
			Reason: fmt.Sprintf("%d of %d cores are kept back for the host", v.KeptBack, cores)}
	}
	return Gauge{Share: seedGauge, Reason: "no core is kept back: that of paper 002, 4 of 48 cores"}
}

// Percent writes the gauge's share.
func (g Gauge) Percent() string { return strconv.FormatFloat(g.Share*100, 'f', 1, 64) + " %" }
