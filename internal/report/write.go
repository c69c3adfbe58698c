package report

import (
	"os"
	"path/filepath"

	"nearmetal/internal/wholefile"
)

// Formats are the output formats of a report.
var Formats = []string{"html", "svg", "png", "text"}

// WritePlots writes each plot of the report as a picture of the format "svg" or "png" into a directory, and returns
// their number. step is called with each file's name before it is written.
func (r *Report) WritePlots(folder, format string, step func(name string)) (int, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	figures := r.Figures()
	for _, f := range figures {
		name := f.Name + "." + format
		step(name)
		scene := f.Scene()
		write := scene.SVG
		if format == "png" {
			write = scene.PNG
		}
		if err := wholefile.Write(filepath.Join(folder, name), write); err != nil {
			return 0, err
		}
	}
	return len(figures), nil
}
