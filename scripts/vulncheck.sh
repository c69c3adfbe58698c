#!/bin/sh
# vulncheck.sh: known vulnerabilities in what nearmetal's programs call, by govulncheck. It asks Go's
# vulnerability database, so it needs the network. Those of the list below are named and do not count.
# Ends with 1 if there is another one, with 2 if the database cannot be reached.
#
# vulncheck.sh --if-reachable: the same for CI, which may have no way there: then it says so and ends with 0.
#
# environment: GOVULNDB   another copy of the database: file:///DIR of its data/osv
set -u
cd "$(dirname "$0")/.." || exit 1

# Fixed in golang.org/x/image 0.38 and 0.39, which Go 1.22 does not build. The fonts are those in the
# program itself, and no TIFF is read.
known='GO-2026-4815
GO-2026-4962'

# unreachable STATUS: ends with that.
unreachable() {
	echo "vulncheck: Go's vulnerability database cannot be reached from here: nothing was checked" >&2
	exit "$1"
}

away=2
if [ "${1:-}" = --if-reachable ]; then
	away=0
	# Before half a minute of building.
	python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5).read(1)' \
		"${GOVULNDB:-https://vuln.go.dev}/index/db.json" 2>/dev/null || unreachable 0
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ${GOVULNDB:+-db "$GOVULNDB"} ./cmd/... >"$out" 2>&1
status=$?
if grep -qE 'fetching vulnerabilities|no such host|connection refused|i/o timeout' "$out"; then
	unreachable $away
fi
cat "$out"
[ $status != 0 ] || exit 0
found=$(sed -n 's/^Vulnerability #[0-9]*: //p' "$out")
[ -n "$found" ] || exit 1 # it failed otherwise
new=$(printf '%s\n' "$found" | grep -vxF "$known")
if [ -n "$new" ]; then
	echo "vulncheck: not on the list in scripts/vulncheck.sh:" $new >&2
	exit 1
fi
echo "vulncheck: all of these are on the list in scripts/vulncheck.sh"
