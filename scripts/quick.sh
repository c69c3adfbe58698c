#!/bin/sh
# quick.sh: `make quick`, the checks before a commit. It installs nothing and fetches nothing:
# it needs Go, and the modules of go.mod in Go's cache. The C parts are checked where meson,
# ninja and gcc are there, beside Go's. Its last line has the seconds of each step, and names what it left out. Ends
# with 1 if a check failed.
set -u
cd "$(dirname "$0")/.." || exit 1
export CGO_ENABLED=0 GOPROXY=off
began=$(date +%s)
left="VMs, MPI libraries and Slurm (make test)"
steps=

# step NAME: NAME has ended now.
last=$began
step() {
	now=$(date +%s)
	steps="$steps${steps:+, }$1 $((now - last))"
	last=$now
}

command -v go >/dev/null || { echo "quick.sh: there is no go here: sh scripts/install.sh base" >&2; exit 1; }
go mod download 2>/dev/null || { echo "quick.sh: modules of go.mod are missing: sh scripts/modules.sh" >&2; exit 1; }

missing=
for p in meson ninja gcc; do
	command -v "$p" >/dev/null || missing="$missing $p"
done
# fresh_agent: where `make` has embedded an agent, Go's tests get the one of now.
agent=internal/guest/image/payload/agent-x86_64
fresh_agent() {
	[ -e $agent ] && [ -e build/c/build.ninja ] || return 0
	sh scripts/meson.sh || return 1
	ninja --quiet -C build/c guest/nearmetal-agent || return 1
	cmp -s build/c/guest/nearmetal-agent $agent || cp build/c/guest/nearmetal-agent $agent
}
# check_c: builds what is C, and runs its unit tests.
check_c() {
	sh scripts/meson.sh || return 1
	ninja --quiet -C build/c && meson test -C build/c --no-rebuild --print-errorlogs --suite unit
}
c=
if [ -n "$missing" ]; then
	left="$left; C (no$missing)"
else
	mkdir -p build
	fresh_agent || exit 1
	check_c >build/quick-c.log 2>&1 &
	c=$!
	trap 'kill $c 2>/dev/null' EXIT
	trap 'exit 1' INT TERM HUP
fi

# vet compiles all packages, and the tests take from Go's cache what it compiled. So there is no build of its own,
# which would link each program, and no second vet with the tests.
make --no-print-directory -s lint || exit 1
step lint
packages=$(go list ./cmd/... ./internal/... ./tools/...)
# The guest agent is compiled by its own tests.
[ -z "$missing" ] || packages=$(printf '%s\n' "$packages" | grep -v '/internal/guest$')
# shellcheck disable=SC2086
out=$(go test -short -vet=off $packages 2>&1) || {
	printf '%s\n' "$out" | grep -Ev '^(ok|\?)[[:space:]]'
	exit 1
}
step Go
if [ -n "$c" ]; then
	wait "$c" || { cat build/quick-c.log; exit 1; }
	c=
	trap - EXIT
	step "C beside it, then"
fi
echo "quick: ok in $(($(date +%s) - began)) s ($steps); left out: $left"
