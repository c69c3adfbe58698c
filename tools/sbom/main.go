// Command sbom lists the components of nearmetal's programs, from the data that the go command wrote into them: as a
// bill of materials (CycloneDX 1.5, JSON) or as a page. The same programs always have the same list, which contains
// neither times nor random numbers.
//
//	go -C tools/sbom run . -version V PROGRAM...    the bill of materials
//	go -C tools/sbom run . -page PROGRAM...         the page THIRD_PARTY.md
//
// The licences are read from the modules' own files, in the Go module cache.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// part is one component of the programs.
type part struct {
	name, version string
	sum           string // h1: hash of a Go module, as in go.sum
	purl          string // package URL, "" for none
	licence       string // an SPDX expression
	where         string // for the page
}

func main() {
	page := flag.Bool("page", false, "print the page, not the bill of materials")
	version := flag.String("version", "unknown", "nearmetal's version")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "sbom: name the programs, such as build/nearmetal")
		os.Exit(2)
	}
	parts, err := read(flag.Args())
	if err == nil && *page {
		err = printPage(parts)
	} else if err == nil {
		err = printBOM(*version, parts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// read returns the parts of the programs, by name: Go's standard library, the modules, and the C library that the guest
// agent is linked with.
func read(programs []string) ([]part, error) {
	byName := map[string]part{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return nil, err
		}
		goVersion := strings.TrimPrefix(info.GoVersion, "go")
		byName["std"] = part{name: "std", version: goVersion, purl: "pkg:golang/std@" + goVersion,
			licence: "BSD-3-Clause", where: "Go's standard library and run time"}
		for _, m := range info.Deps {
			for m.Replace != nil {
				m = m.Replace
			}
			l, err := licence(m.Path, m.Version)
			if err != nil {
				return nil, err
			}
			byName[m.Path] = part{name: m.Path, version: m.Version, sum: m.Sum,
				purl: "pkg:golang/" + m.Path + "@" + m.Version, licence: l, where: "nearmetal"}
		}
	}
	libc, err := exec.Command("getconf", "GNU_LIBC_VERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("getconf GNU_LIBC_VERSION: %w", err)
	}
	byName["glibc"] = part{name: "glibc", version: strings.TrimPrefix(strings.TrimSpace(string(libc)), "glibc "),
		licence: "LGPL-2.1-or-later", where: "the guest agent, which is linked statically"}
	var parts []part
	for _, p := range byName {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return parts, nil
}

// choice has the modules whose licences leave a choice that their licence files do not show.
var choice = map[string]string{"github.com/golang/freetype": "FTL OR GPL-2.0-or-later"}

// licence returns a module's licences as an SPDX expression: all licences in its licence files.
func licence(path, version string) (string, error) {
	if c := choice[path]; c != "" {
		return c, nil
	}
	out, err := exec.Command("go", "mod", "download", "-json", path+"@"+version).Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", path, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	var found []string
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "license*", "licenses/*"} {
		files, _ := filepath.Glob(filepath.Join(m.Dir, pattern))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				continue // a directory
			}
			for _, match := range licensecheck.Scan(text).Match {
				if !match.IsURL && !slices.Contains(found, match.ID) {
					found = append(found, match.ID)
				}
			}
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s %s: no licence found in %s", path, version, m.Dir)
	}
	slices.Sort(found)
	return strings.Join(found, " AND "), nil
}

func printBOM(version string, parts []part) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{BOMRef: "nearmetal", Type: cdx.ComponentTypeApplication,
		Name: "nearmetal", Version: version, Licenses: names("Apache-2.0")}}
	var list []cdx.Component
	var refs []string
	for _, p := range parts {
		ref := p.purl
		if ref == "" {
			ref = p.name + "@" + p.version
		}
		c := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: p.name, Version: p.version,
			PackageURL: p.purl, Licenses: names(p.licence)}
		if p.sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: p.sum}}
		}
		list, refs = append(list, c), append(refs, ref)
	}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: "nearmetal", Dependencies: &refs}}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_5)
}

func names(licence string) *cdx.Licenses {
	if strings.Contains(licence, " ") {
		return &cdx.Licenses{{Expression: licence}}
	}
	return &cdx.Licenses{{License: &cdx.License{ID: licence}}}
}

func printPage(parts []part) error {
	fmt.Print(`# Third parties

What nearmetal's programs contain of others, with their licences. Made by make licenses from
what the go command wrote into the programs, and from each module's own licence files. The check
make lint requires that it names every module. What tests and tools use is not in the programs. The
version of Go and of glibc is that of the machine that builds, and is in the bill of materials
(make sbom).

| name | version | licence | where |
|---|---|---|---|
`)
	for _, p := range parts {
		version := p.version
		if p.sum == "" {
			version = "that of the build"
		}
		fmt.Printf("| %s | %s | %s | %s |\n", p.name, version, p.licence, p.where)
	}
	return nil
}
