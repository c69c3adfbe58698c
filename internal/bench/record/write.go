package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"nearmetal/internal/wholefile"
)

// SaveRun atomically writes run.json of a directory.
func SaveRun(dir string, r *Run) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the run down: %w", err)
	}
	return wholefile.Write(filepath.Join(dir, RunFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// Lines returns samples as the lines of a samples file.
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
