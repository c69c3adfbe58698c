package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Formats are what a report can be written as.
var Formats = []string{"html", "svg", "png", "text"}

// WriteFile writes a file whole or not at all: beside it first, then renamed.
func WriteFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no such file once it is renamed
	w := bufio.NewWriterSize(f, 1<<16)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// WritePlots writes each plot of the report as a picture of the format "svg" or "png" into a
// folder, and gives how many. step is told each file's name before it is written.
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
		if err := WriteFile(filepath.Join(folder, name), write); err != nil {
			return 0, err
		}
	}
	return len(figures), nil
}
