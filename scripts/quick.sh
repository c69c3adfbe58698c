#!/bin/sh
# quick.sh: `make quick`, the checks before a commit. It installs nothing and fetches nothing:
# it needs Go, and the modules of go.mod in Go's cache. The C parts are checked where meson,
# ninja and gcc are there. Its last line names what it left out. Ends with 1 if a check failed.
set -u
cd "$(dirname "$0")/.." || exit 1
export CGO_ENABLED=0 GOPROXY=off
began=$(date +%s)
left="VMs, MPI libraries and Slurm (make test)"

command -v go >/dev/null || { echo "quick.sh: there is no go here: sh scripts/install.sh base" >&2; exit 1; }
go mod download 2>/dev/null || { echo "quick.sh: modules of go.mod are missing: sh scripts/modules.sh" >&2; exit 1; }

go build ./... || exit 1
make --no-print-directory -s lint || exit 1
missing=
for p in meson ninja gcc; do
	command -v "$p" >/dev/null || missing="$missing $p"
done
packages=$(go list ./cmd/... ./internal/... ./tools/...)
# The guest agent is compiled by its own tests.
[ -z "$missing" ] || packages=$(printf '%s\n' "$packages" | grep -v '/internal/guest$')
# shellcheck disable=SC2086
out=$(go test -short $packages 2>&1) || {
	printf '%s\n' "$out" | grep -Ev '^(ok|\?)[[:space:]]'
	exit 1
}
if [ -n "$missing" ]; then
	left="$left; C (no$missing)"
else
	[ -e build/c/build.ninja ] || out=$(meson setup --buildtype=release build/c . 2>&1) || {
		printf '%s\n' "$out"
		exit 1
	}
	ninja -C build/c >build/c/quick.log || { cat build/c/quick.log; exit 1; }
	out=$(meson test -C build/c --no-rebuild --print-errorlogs --suite unit 2>&1) || {
		printf '%s\n' "$out"
		exit 1
	}
fi
echo "quick: ok in $(($(date +%s) - began)) s; left out: $left"
