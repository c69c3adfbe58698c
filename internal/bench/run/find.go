package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
)

// SuitesOfRuns returns the files of suites that the runs in record.RunsDir were started with and that can be read as
// suites, those of later runs last.
func SuitesOfRuns() []string {
	folders, err := filepath.Glob(filepath.Join(record.RunsDir, "*", record.RunFile))
	if err != nil {
		return nil
	}
	var files []string
	for _, f := range folders {
		run, err := record.LoadRun(filepath.Dir(f))
		if err != nil {
			continue
		}
		for i, word := range run.Command {
			file, joined := strings.CutPrefix(word, "--suite=")
			if word == "--suite" && i+1 < len(run.Command) {
				file, joined = run.Command[i+1], true
			}
			if _, err := suite.All([]string{file}); joined && err == nil && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// besideProgram returns the existing directories among parts, which are relative to this program's: those of the build
// tree and of `make install`.
func besideProgram(parts ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return nil
	}
	var out []string
	for _, p := range parts {
		if dir := filepath.Join(filepath.Dir(exe), p); exists(dir) {
			out = append(out, dir)
		}
	}
	return out
}

// KernelDirs returns the directories with nearmetal's own programs, one for each MPI that they are built for.
func KernelDirs() []string {
	var out []string
	for _, dir := range besideProgram("c/kernels", "kernels", "../libexec/nearmetal") {
		out = append(out, dir)
		more, _ := filepath.Glob(filepath.Join(dir, "*", "nm_latency"))
		for _, path := range more {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}

// ProviderDir returns the directory with nearmetal's libfabric provider, "" if there is none.
func ProviderDir() string {
	for _, dir := range besideProgram("c/fabric", "../lib/nearmetal/libfabric") {
		if exists(filepath.Join(dir, "libivshmem-fi.so")) {
			return dir
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
