package run

import (
	"bytes"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// maxPicture is the maximum size of a drawing in a record, in bytes.
const maxPicture = 4 << 20

// planPicture draws a plan on this host; "" if it cannot be drawn.
func planPicture(p *plan.Plan) string {
	h, err := topology.Read("/")
	if err != nil {
		return ""
	}
	var b bytes.Buffer
	if p.SVG(&b, []topology.Host{*h}, plan.Ledger{}) != nil || b.Len() > maxPicture {
		return ""
	}
	return b.String()
}
