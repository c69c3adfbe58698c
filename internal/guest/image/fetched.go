package image

import (
	"fmt"
	"path/filepath"
	"strings"

	"nearmetal/internal/host/cache"
)

// If the user cannot read a kernel in /boot, Keep can put it into the user's cache (`nearmetal kernel fetch`).

// fetchedName returns the cache entry of a kernel.
func fetchedName(version string) string {
	return "fetched-" + strings.NewReplacer("+", "_", "~", "_").Replace(version)
}

// cacheDir returns the cache in which fetched kernels are searched; nil: none.
func (f Finder) cacheDir() *cache.Dir {
	if f.Cache != nil || f.Root != "" {
		return f.Cache
	}
	d, err := cache.Open()
	if err != nil {
		return nil
	}
	return d
}

// fetched returns the path of a kernel in the user's cache, or "".
func (f Finder) fetched(version string) string {
	d := f.cacheDir()
	if d == nil {
		return ""
	}
	file, _, err := d.Open(fetchedName(version))
	if err != nil {
		return ""
	}
	file.Close()
	path := filepath.Join(d.Path(), fetchedName(version))
	if v, err := bzVersion(path); err != nil || v != version {
		return ""
	}
	return path
}

// Keep puts a bzImage into a cache, where Find searches it if /boot's is not readable. Its header must have the
// version.
func Keep(d *cache.Dir, version string, bzImage []byte) error {
	if v, err := versionIn(bzImage[:min(len(bzImage), 64<<10)]); err != nil {
		return err
	} else if v != version {
		return fmt.Errorf("it is kernel %q", v)
	}
	f, err := d.Put(fetchedName(version), bzImage)
	if err != nil {
		return err
	}
	return f.Close()
}

// Closed returns the version of the first kernel, in the order of Find, that has modules and whose file the caller
// may not read, and whether Find nevertheless uses another one. No version: none.
func (f Finder) Closed() (version string, others bool, err error) {
	versions, err := f.versions()
	if err != nil {
		return "", false, err
	}
	_, findErr := f.Find("")
	for _, v := range versions {
		if f.modules(v) != "" && readable(f.path("/boot/vmlinuz-"+v)) != nil && readable(filepath.Join(f.modules(v), besideModules)) != nil {
			return v, findErr == nil, nil
		}
	}
	return "", findErr == nil, nil
}
