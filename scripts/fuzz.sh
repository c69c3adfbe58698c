#!/bin/sh
# fuzz.sh [go|c]: `make fuzz`, the fuzz targets of Go and of C, two at a time for each CPU.
#
# A line for each target says how it ended. A finding is shown. Go keeps its input below testdata/fuzz, and libFuzzer
# as build/fuzz-*. Ends with 1 if a target found something. The targets of C need clang
# (scripts/install.sh clang), and those of the provider need libfabric's headers.
#
# environment: FUZZ_EACH     seconds for each target (10)
#              FUZZ_SECONDS  seconds for the whole run, shared out evenly; in place of FUZZ_EACH
set -eu
cd "$(dirname "$0")/.."
top=$PWD
kinds=${1:-go c}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'trap "" TERM; kill 0; exit 130' INT TERM HUP
# The Makefile's flags, so that the runtime it has compiled is in Go's cache.
GOFLAGS="$(go env GOFLAGS 2>/dev/null) -trimpath"
export CGO_ENABLED=0 GOFLAGS FUZZ_WORK="$work"

# A target is a line of $work/targets: its folder, its name, and the program with its options.
# compile NAME SOURCE...: a C target with the sanitizers, to $work/NAME.
compile() {
	out=$1
	shift
	clang -std=c11 -D_GNU_SOURCE -g -O1 -fno-strict-aliasing -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=undefined -o "$work/$out" "$@"
}

go_targets() {
	# An empty folder of tests has no files of Go for this system.
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' ./... | while read -r dir pkg; do
		names=$(grep -hos '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u)
		[ -n "$names" ] || continue
		program=$work/$(printf %s "$pkg" | tr / -).test
		echo "$program $pkg" >>"$work/programs"
		for name in $names; do
			# How long a new input is made smaller, while nothing else is tried. What FuzzExplain runs through differs from
			# time to time (maps), so that this took all of its time: 14 inputs in 47 s, 116,309 in 20 s with 10 tries.
			least=1s
			[ "$name" != FuzzExplain ] || least=10x
			printf '%s\t%s\t%s\n' "$dir" "${pkg#nearmetal/} $name" \
				"$program -test.run ^\$ -test.fuzz ^$name\$ -test.fuzztime SECONDSs -test.parallel 1 -test.fuzzminimizetime $least -test.fuzzcachedir $work/cache"
		done
	done
	# The first, cmd/nearmetal, compiles what nearly all others need. After that a link keeps one CPU busy.
	for part in 1p '2,$p'; do
		sed -n "$part" "$work/programs" | xargs -r -P "$(nproc)" -L 1 go test -c -fuzz . -o
	done
}

c_targets() {
	if ! command -v clang >/dev/null 2>&1; then
		echo "fuzz.sh: no clang: the targets of C are left out (sh scripts/install.sh clang)" >&2
		return
	fi
	for name in config mux; do
		(cd guest && compile "guest-$name" "fuzz/fuzz_$name.c" buf.c config.c fields.c frame.c log.c loop.c mux.c)
		printf '%s\tguest %s\t%s\n' "$work" "$name" "$work/guest-$name -max_total_time=SECONDS -artifact_prefix=$top/build/fuzz-"
	done
	(cd slurm && compile slurm-options fuzz/fuzz_options.c multiprog.c request.c values.c)
	printf '%s\tslurm options\t%s\n' "$work" "$work/slurm-options -max_total_time=SECONDS -artifact_prefix=$top/build/fuzz-"
	# The provider over a region that is spoiled while two endpoints of a process, or two ranks, talk.
	if [ ! -e /usr/include/rdma/fabric.h ]; then
		echo "fuzz.sh: no headers of libfabric: the provider's targets are left out (apt-get install libfabric-dev)" >&2
		return
	fi
	# What the transport for UCX receives. It needs no UCX for that.
	sources=$(grep -o "'[a-z./_]*\.c'" ucx/meson.build | tr -d "'" | grep -v preload)
	# shellcheck disable=SC2086
	(cd ucx && compile ucx-receive -I. -I../fabric -I../include fuzz/fuzz_receive.c $sources -lpthread -ldl)
	printf '%s\tucx receive\t%s\n' "$work" \
		"$work/ucx-receive -max_total_time=SECONDS -artifact_prefix=$top/build/fuzz- -max_len=600 -len_control=0 -timeout=60"
	sources=$(grep -o "'[a-z]*/[a-z_]*\.c'" fabric/meson.build | tr -d "'") # of fabric_sources
	for name in region ranks; do
		# shellcheck disable=SC2086
		(cd fabric && compile "fabric-$name" -I. -I../include "fuzz/fuzz_$name.c" $sources -lfabric -lpthread -ldl)
		# Nothing is added to the kept corpus: libFuzzer writes to the first folder.
		mkdir "$work/corpus-$name"
		printf '%s\tfabric %s\t%s\n' "$work" "$name" \
			"$work/fabric-$name -max_total_time=SECONDS -artifact_prefix=$top/build/fuzz- -max_len=600 -len_control=0 -timeout=60 $work/corpus-$name $top/fabric/fuzz/corpus/$name"
	done
}

for kind in $kinds; do
	case $kind in
	go | c) "${kind}_targets" >>"$work/targets" ;;
	*)
		echo "fuzz.sh: $kind: it is go or c" >&2
		exit 2
		;;
	esac
done
count=$(wc -l <"$work/targets")
jobs=$((2 * $(nproc)))
each=${FUZZ_EACH:-10}
if [ -n "${FUZZ_SECONDS:-}" ]; then
	each=$((FUZZ_SECONDS * jobs / count))
	[ "$each" -gt 0 ] || each=1
fi
echo "$count fuzz targets, $each s each, $jobs at a time"
sed -i "s/SECONDS/$each/" "$work/targets"

# shellcheck disable=SC2016
xargs -P "$jobs" -d '\n' -n 1 sh -c '
	dir=$(printf %s "$1" | cut -f 1)
	name=$(printf %s "$1" | cut -f 2)
	log=$FUZZ_WORK/log-$(printf %s "$name" | tr "/ " --)
	cd "$dir"
	# Go calls it a failure as well when the time is over while an input is made smaller. No input is named then.
	if sh -c "exec $(printf %s "$1" | cut -f 3)" >"$log" 2>&1 </dev/null ||
		{ grep -q "^    context deadline exceeded$" "$log" && ! grep -q "Failing input\|panic\|seed corpus" "$log"; }; then
		echo "ok      $name"
	else
		{ echo "FOUND   $name"; cat "$log"; } >"$log.whole"
		cat "$log.whole"
		exit 1
	fi' sh <"$work/targets"
