#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (10) each: Go's own, and the C ones where
# clang is there.
set -eu
seconds=${FUZZ_SECONDS:-10}
go list ./... | while read -r pkg; do
	dir=$(go list -f '{{.Dir}}' "$pkg")
	grep -hos '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u |
		while read -r target; do
			echo "== $pkg $target"
			go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$pkg" </dev/null
		done
done
