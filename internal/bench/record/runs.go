package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// RunsDir is the directory in the working directory in which runs are kept.
const RunsDir = "nearmetal-bench"

// Find returns the directory of the run that a user names: a path, or the name of a run in RunsDir.
func Find(name string) string {
	if !exists(name) && !strings.Contains(name, "/") {
		if in := filepath.Join(RunsDir, name); exists(in) {
			return in
		}
	}
	return name
}

// IsRun reports whether dir is the directory of a run.
func IsRun(dir string) bool { return exists(filepath.Join(dir, RunFile)) }

// maxName bounds the part of a run's name that its words make, in bytes.
const maxName = 60

// NewDir returns the absolute path of a new run's directory: dir, or one in RunsDir that is named after the start and
// the words of the run. It fails if a run is there already.
func NewDir(dir string, started time.Time, words []string) (string, error) {
	if dir == "" {
		name := strings.ReplaceAll(strings.Join(words, "-"), "/", "-")
		dir = filepath.Join(RunsDir, started.Local().Format("20060102-150405")+"-"+name[:min(len(name), maxName)])
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if IsRun(dir) {
		return "", fmt.Errorf("%s holds a run already: give another --out, or go on with --resume", dir)
	}
	return dir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
