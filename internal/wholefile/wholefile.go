// Package wholefile writes files so that a reader never sees a part of one, and so that a failure leaves the old file
// unchanged.
package wholefile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"nearmetal/internal/words"
)

// Write writes the file name, mode 0644, with the output of write: to a temporary file in its directory, which is
// then renamed. An error is one line that names the file; the file is then unchanged.
func Write(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, words.Cause(err))
	}
	defer os.Remove(f.Name()) // it no longer exists after the rename
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
		return fmt.Errorf("cannot write %s: %w", name, words.Cause(err))
	}
	return nil
}
