// Package chart draws the plots of a report: lines over logarithmic axes, grouped bars, both
// with confidence intervals. A Figure says what is shown; Scene lays it out; a scene is
// written as SVG, for a page or alone, or as PNG. Series are distinguished by colour, by marker and
// by dashes or hatching, so that a grey print and every eye can read them.
package chart

// Figure is one plot.
type Figure struct {
	Name   string // stem of its file's name
	Title  string // what it shows; heading of the picture when it stands alone
	X, Y   Axis
	Bars   bool // grouped bars over X.Names; lines with markers otherwise
	Series []Series
	Rules  []Rule
	// Legend draws the names of the series into the picture; a page has them beside it.
	Legend bool
	Small  bool // one of several multiples: fewer ticks
}

// Axis is one axis of a figure.
type Axis struct {
	Label string // with its unit in parentheses
	Scale Scale
	Bytes bool     // ticks are message sizes in bytes, at powers of two
	Names []string // the axis has categories: tick i, at the value i, is called Names[i]
	Whole bool     // ticks at the values that occur, no others
	// Percent shows a tick of 1 as 100 %.
	Percent bool
	// Zero makes a place for the value 0 on a logarithmic x axis, before a break.
	Zero bool
	// Show are values that the axis must reach.
	Show []float64
}

// Scale is how values lie on an axis.
type Scale int

// The scales.
const (
	Linear Scale = iota
	Log          // to the base of 10
	Log2         // to the base of 2
)

// Series is what is measured of one variant.
type Series struct {
	Name   string
	Style  int  // which colour, marker and dash; the baseline has 0
	Faint  bool // drawn grey and without a line: not to be compared
	Points []Point
}

// Point is one value with its confidence interval; without one, Low and High are equal to Y.
type Point struct {
	X, Y, Low, High float64
	Tip             string // shown under the pointer
	Top             string // written over a bar
}

// Rule is a horizontal line (Low == High) or band of a figure.
type Rule struct {
	Low, High float64
	Label     string
}
