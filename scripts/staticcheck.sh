#!/bin/sh
# staticcheck.sh [PACKAGE...]: staticcheck, in the version that this Go can build, over all packages
# or those named, with the build tags of all tests. The first time it is fetched and built: 30 s of CPU.
set -eu
cd "$(dirname "$0")/.."
minor=$(go env GOVERSION | sed 's/^go1\.\([0-9]*\).*/\1/')
case $minor in
22 | 23) version=v0.5.1 ;;
*) version=v0.6.1 ;; # v0.5.1 does not compile with Go 1.25 and newer
esac
[ $# -gt 0 ] || set -- ./...
exec go run "honnef.co/go/tools/cmd/staticcheck@$version" -tags browser,sacct,unified "$@"
