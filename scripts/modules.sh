#!/bin/sh
# modules.sh [--plan]: fetches the Go modules that go.mod names, into Go's own cache. With all of
# them there it does nothing. --plan only prints how many are missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/fetch.sh

command -v go >/dev/null 2>&1 || {
	# scripts/install.sh --plan has said that Go itself is missing.
	[ "${1:-}" = --plan ] && echo "Go modules, 101 MB to fetch" && exit 0
	echo "modules.sh: no go here: sh scripts/install.sh base" >&2
	exit 1
}
GOPROXY=off go mod download 2>/dev/null && exit 0
if [ "${1:-}" = --plan ]; then
	echo "Go modules, 101 MB to fetch"
	exit 0
fi
cache=$(go env GOMODCACHE)/cache/download
size() { if [ -d "$cache" ]; then du -sb "$cache" | cut -f 1; else echo 0; fi; }
before=$(size)
start=$(date +%s)
# What one try has fetched stays for the next.
fetch_try "go mod download" timeout 900 go mod download || exit 1
rm -f "$fetch_out"
fetch_note Go "$start" $(($(size) - before)) "the modules of go.mod"
