package image

import (
	"errors"
	"fmt"
	"os"

	"nearmetal/internal/host/cache"
)

// store is the cache as used by this package: missing entries are made.
type store struct {
	dir    *cache.Dir // nil: nothing can be kept
	notice func(string)
	made   bool // something was made
}

// get opens an entry, which build makes if it is missing or damaged; what is its name in notices. If the cache is not
// writable, the entry is a file in memory. It also returns the length of the data.
func (s *store) get(key, what string, build func() ([]byte, error)) (*os.File, int64, error) {
	if s.dir != nil {
		f, n, err := s.dir.Open(key)
		switch {
		case err == nil:
			return f, n, nil
		case errors.Is(err, cache.ErrCorrupt):
			s.notice(fmt.Sprintf("the cached %s was corrupted, and is made anew (%s)", what, s.dir.Path()))
		case !errors.Is(err, os.ErrNotExist):
			s.notice(fmt.Sprintf("the cached %s cannot be read, and is made anew: %v", what, err))
		}
	}
	data, err := build()
	if err != nil {
		return nil, 0, err
	}
	s.made = true
	if s.dir != nil {
		f, err := s.dir.Put(key, data)
		if err == nil {
			return f, int64(len(data)), nil
		}
		s.notice(fmt.Sprintf("the %s cannot be kept: %v", what, err))
	}
	f, err := memFile("nearmetal-image")
	if err != nil {
		return nil, 0, err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("%s in memory: %w", what, err)
	}
	return f, int64(len(data)), nil
}
