package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// SaveRun writes run.json of a folder, all of it or nothing.
func SaveRun(dir string, r *Run) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the run down: %w", err)
	}
	return writeWhole(filepath.Join(dir, RunFile), append(text, '\n'))
}

// writeWhole puts a file in the place of another at once, so that a reader never sees half of it.
func writeWhole(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Lines gives samples as the lines of a samples file.
func Lines(samples []Sample) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range samples {
		if err := e.Encode(&samples[i]); err != nil {
			return nil, fmt.Errorf("cannot write a sample of %s: %w", samples[i].Case, err)
		}
	}
	return b.Bytes(), nil
}
