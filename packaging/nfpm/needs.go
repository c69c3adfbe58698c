package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"
)

// debPackages are Debian's packages of the libraries that our programs may need, by the library's name.
var debPackages = map[string]string{"libc.so.6": "libc6", "libm.so.6": "libc6", "libgomp.so.1": "libgomp1"}

// needs returns the dependencies of a package's programs and libraries, from what is written in them: the libraries, and
// of GNU's C library the newest version that they take a symbol of.
func needs(f family, contents files.Contents) ([]string, error) {
	glibc, libraries := "", map[string]bool{}
	for _, c := range contents {
		if c.Type != "" {
			continue
		}
		e, err := elf.Open(c.Source)
		var other *elf.FormatError
		if errors.As(err, &other) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names, err1 := e.ImportedLibraries()
		symbols, err2 := e.ImportedSymbols()
		e.Close()
		if err2 == elf.ErrNoSymbols {
			err2 = nil // a static program
		}
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Source, err)
		}
		for _, n := range names {
			if debPackages[n] == "" {
				return nil, fmt.Errorf("%s needs %s, whose package is not known here", c.Source, n)
			}
			libraries[n] = true
		}
		for _, s := range symbols {
			if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && newer(v, glibc) {
				glibc = v
			}
		}
	}
	var list []string
	for n := range libraries {
		need := n + "()(64bit)"
		switch {
		case f.kind == "deb" && debPackages[n] == "libc6":
			need = fmt.Sprintf("libc6 (>= %s)", glibc)
		case f.kind == "deb":
			need = debPackages[n]
		case n == "libc.so.6":
			need = fmt.Sprintf("libc.so.6(GLIBC_%s)(64bit)", glibc)
		}
		list = append(list, need)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// newer reports whether version a (2.34) is above b; "" is below all.
func newer(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range x {
		if i >= len(y) {
			return true
		}
		n, err := strconv.Atoi(x[i])
		m, _ := strconv.Atoi(y[i])
		if err != nil || n != m {
			return err == nil && n > m
		}
	}
	return false
}
