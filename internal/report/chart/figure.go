// Package chart draws the plots of a report: lines over logarithmic axes, and grouped bars, both with confidence
// intervals. A Figure describes the content, and Scene lays it out. A scene is written as SVG, for a page or as a
// file, or as PNG. Series differ in colour and marker, and in dashes or hatching, so that they are distinguishable in
// greyscale and by colour-blind readers.
package chart

// Figure is one plot.
type Figure struct {
	Name   string // stem of its file's name
	Title  string // content; heading of the picture if it is a file of its own
	X, Y   Axis
	Bars   bool // grouped bars over X.Names; lines with markers otherwise
	Series []Series
	Rules  []Rule
	// Legend draws the names of the series into the picture; a page has a separate legend.
	Legend bool
	Small  bool // one of several multiples: fewer ticks
}

// Axis is one axis of a figure.
type Axis struct {
	Label string // with its unit in parentheses
	Scale Scale
	Bytes bool     // ticks are message sizes in bytes, at powers of two
	Names []string // the axis has categories: tick i, at the value i, is called Names[i]
	Whole bool     // ticks only at the values of the points
	// Percent shows a tick of 1 as 100 %.
	Percent bool
	// Zero reserves a position for the value 0 on a logarithmic x axis, before a break.
	Zero bool
	// Show are values that the axis must include.
	Show []float64
}

// Scale maps values to positions on an axis.
type Scale int

// Scales of an axis.
const (
	Linear Scale = iota
	Log          // to the base of 10
	Log2         // to the base of 2
)

// Series are the measured values of one variant.
type Series struct {
	Name   string
	Style  int  // index of colour, marker and dash; 0 for the baseline
	Faint  bool // drawn grey and without a line: not comparable
	Points []Point
}

// Point is one value with its confidence interval. Without an interval, Low and High are equal to Y.
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
