// Command lint checks what gofmt, vet and staticcheck do not cover: the words and the sentences of the prose, idioms,
// the links of the pages, the subjects of commits, the marks in go.mod, the list of third parties, the permitted
// imports between packages and between directories of fabric/, the writers of a peer's members, the picture of the
// imports, the size of the packages and types of a cluster, and the names of the files of cmd/nearmetal, which must
// contain no logic. make lint runs it in the repository's root. It needs git only for the subjects, and no network.
//
//	go run ./tools/lint            check
//	go run ./tools/lint -shrink    check, and lower the numbers in tools/lint/allowed.txt
//	go run ./tools/lint -draw      draw docs/architecture.svg from the imports
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	shrink := flag.Bool("shrink", false, "lower the numbers in "+allowedFile+" to what is there; no number rises")
	drawn := flag.Bool("draw", false, "draw "+pictureFile+", and check nothing")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "lint: no arguments; see -help")
		os.Exit(2)
	}
	if *drawn {
		svg, err := draw(".")
		if err == nil {
			err = os.WriteFile(pictureFile, svg, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "lint:", err)
			os.Exit(1)
		}
		return
	}
	bad := 0
	for _, check := range []func() ([]string, error){
		func() ([]string, error) { return prose(".", *shrink) },
		func() ([]string, error) { return links(".") },
		subjects, direct, thirdParty,
		func() ([]string, error) { return includes(".") },
		func() ([]string, error) { return includesUCX(".") },
		func() ([]string, error) { return ownersOf(".") },
		func() ([]string, error) { return packages(".") },
		func() ([]string, error) { return picture(".") },
		func() ([]string, error) { return sizes(".") },
		func() ([]string, error) { return commandFiles(".") },
		func() ([]string, error) { return commandLogic(".") },
	} {
		faults, err := check()
		if err != nil {
			faults = append(faults, err.Error())
		}
		for _, f := range faults {
			fmt.Fprintln(os.Stderr, "lint: "+f)
		}
		bad += len(faults)
	}
	if bad > 0 {
		os.Exit(1)
	}
}
