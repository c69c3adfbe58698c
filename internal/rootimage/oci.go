package rootimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	tagName    = "org.opencontainers.image.ref.name"
)

// mostIndex bounds the index of an OCI image.
const mostIndex = 4 << 20

func readIndex(dir string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, indexFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostIndex+1))
	if err == nil && len(b) > mostIndex {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), mostIndex)
	}
	return b, err
}

// tags returns the tags of an OCI image.
func tags(dir string) ([]string, error) {
	b, err := readIndex(dir)
	if err != nil {
		return nil, err
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	var list []string
	for _, m := range index.Manifests {
		if t := m.Annotations[tagName]; t != "" {
			list = append(list, t)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// tag returns the tag of an OCI image to use.
func tag(dir, want string) (string, error) {
	list, err := tags(dir)
	switch {
	case err != nil:
		return "", err
	case want != "" && !slices.Contains(list, want):
		return "", fmt.Errorf("it has no tag %q (it has: %s)", want, strings.Join(list, ", "))
	case want != "":
		return want, nil
	case len(list) == 0:
		return "", errors.New("it has no image with a tag")
	case len(list) > 1:
		return "", fmt.Errorf("it has several images: say which, %s:TAG (TAG: %s)", dir, strings.Join(list, ", "))
	}
	return list[0], nil
}
