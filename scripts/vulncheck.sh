#!/bin/sh
# vulncheck.sh: known vulnerabilities in what nearmetal's programs call, by govulncheck. It asks Go's
# vulnerability database, so it needs the network. GOVULNDB names another copy of the database.
# Ends with 1 if there is one, with 2 if the database cannot be reached.
set -u
cd "$(dirname "$0")/.." || exit 1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ${GOVULNDB:+-db "$GOVULNDB"} ./cmd/... >"$out" 2>&1
status=$?
if grep -qE 'fetching vulnerabilities|no such host|connection refused|i/o timeout' "$out"; then
	echo "vulncheck: Go's vulnerability database cannot be reached from here: nothing was checked" >&2
	exit 2
fi
cat "$out"
[ $status = 0 ] || exit 1
