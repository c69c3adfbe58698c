package local

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"nearmetal/internal/cluster/provider"
	"nearmetal/internal/host/cache"
	"nearmetal/internal/rootimage"
	"nearmetal/internal/spec"
)

// openRoot makes a directory of a root that is an image, and fails if the root lacks the launcher o.Launcher.
func openRoot(ctx context.Context, o options, notice func(string)) error {
	s, given := o.Spec, o.Spec.Root
	if s.Root == "host" || s.Root == spec.RootBackend {
		return nil
	}
	i, err := rootimage.Find(s.Root)
	switch {
	case err != nil:
		if _, e := os.Stat(s.Root); e != nil {
			return nil // checkExports says so
		}
		return fmt.Errorf("root %s: %w", s.Root, err)
	case i != nil:
		d, err := cache.Open()
		if err != nil {
			return err
		}
		dir, err := i.Unpack(ctx, d, notice)
		if err != nil {
			return fmt.Errorf("root %s: %w", s.Root, err)
		}
		s.Root = dir
	}
	if o.Launcher != "" && !hasProgram(s, o.Launcher) {
		return fmt.Errorf("root %s has no %s (in %s): install the MPI library there, or add its directory to PATH with env: in the cluster file", given, o.Launcher, strings.Join(rootPath, ", "))
	}
	return nil
}

// rootPath are the directories of a system's programs.
var rootPath = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}

// hasProgram reports whether a root, or a share, contains a program in one of the directories of a command's PATH:
// the caller's, the cluster file's, and the usual ones.
func hasProgram(s *spec.Cluster, name string) bool {
	folders := append([]string{}, rootPath...)
	folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	folders = append(folders, filepath.SplitList(s.Env["PATH"])...)
	for _, dir := range folders {
		if !path.IsAbs(dir) {
			return true // unknown here
		}
		for _, sh := range s.Shares {
			if dir == sh.Target || strings.HasPrefix(dir, strings.TrimSuffix(sh.Target, "/")+"/") {
				if _, err := os.Stat(filepath.Join(sh.Path, strings.TrimPrefix(dir, sh.Target), name)); err == nil {
					return true
				}
			}
		}
		if f, err := provider.OpenBelow(s.Root, filepath.Join(dir, name)); err == nil {
			f.Close()
			return true
		}
	}
	return false
}
