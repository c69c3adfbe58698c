#!/bin/sh
# `make bench-vm`: the figures of this machine, natively and in VMs alternating: latency, bandwidth and collectives of MPI, memory,
# files, noise of a core, and boot time. Below BENCH_OUT (default nearmetal-bench/vm-DATE) it leaves publish/ and publish.tar.gz:
# the report, its data and the machine's description, without names of hosts, users and their directories.
# Interrupted, it goes on where it was when it is called again. BENCH_QUICK=1 takes the small subset, which emulated VMs take always.
set -eu
cd "$(dirname "$0")/.."
nearmetal=build/nearmetal
export NEARMETAL_PROGRAM="$PWD/$nearmetal"

out=${BENCH_OUT:-}
if [ -z "$out" ]; then # the newest that is not over
	for dir in nearmetal-bench/vm-*/; do
		[ ! -e "$dir/machine.json" ] || [ -e "${dir}publish.tar.gz" ] || out=${dir%/}
	done
	out=${out:-nearmetal-bench/vm-$(date +%Y%m%d-%H%M%S)}
fi
mkdir -p "$out"
trap 'echo "bench-vm: interrupted: BENCH_OUT=$out make bench-vm goes on" >&2; exit 130' INT TERM

[ -s "$out/machine.json" ] || {
	"$nearmetal" check --json >"$out/machine.tmp" || [ -s "$out/machine.tmp" ] # it fails where a row does
	mv "$out/machine.tmp" "$out/machine.json"
}
quick=${BENCH_QUICK:-} emulated=
if ! python3 -c 'import json, sys; sys.exit(not any(r["id"] == "kvm.works" and r["status"] == "ok" for r in json.load(sys.stdin)["rows"]))' <"$out/machine.json"; then
	echo "bench-vm: no KVM here: VMs are emulated, and their times mean nothing; a small subset runs" >&2
	quick=1 emulated=1
fi
if [ -n "$quick" ]; then
	set -- osu/latency osu/bw osu/barrier osu/allreduce stream
	few="--quick --repetitions 3 --warmup 0 --memory 512MiB"
	echo "bench-vm: about 10 minutes on two busy cores, in $out" >&2
else
	set -- osu stream
	few=
	echo "bench-vm: some hours at most, in $out; each part repeats what is undecided for an hour at most, and shows the time left" >&2
fi

# part NAME WORDS...: a run of benchmarks, begun or gone on with.
part() {
	name=$1
	shift
	[ ! -e "$out/$name.over" ] || return 0
	echo "bench-vm: $name" >&2
	if [ -e "$out/$name/request.json" ]; then
		set -- --resume "$out/$name"
	else
		# shellcheck disable=SC2086 # words
		set -- "$@" $few --skip-missing --out "$out/$name"
	fi
	code=0
	"$nearmetal" bench run "$@" --wait >/dev/null || code=$?
	# A repetition that failed is in the report. A run that did not end goes on the next time.
	if [ "$code" -gt 1 ] || ! grep -q '"ended": "[1-9]' "$out/$name/run.json" 2>/dev/null; then
		echo "bench-vm: $name did not end: BENCH_OUT=$out make bench-vm goes on" >&2
		exit "$((code ? code : 1))"
	fi
	touch "$out/$name.over"
}
part boot vm/boot --suite test/bench/vm/vm.yaml --variants native
part mpi "$@" --variants native,vm
part vm vm/files vm/noise --suite test/bench/vm/vm.yaml --variants native,vm

# What is published has no names of hosts, users and their directories, and no addresses of cards.
rm -rf "$out/publish"
mkdir "$out/publish"
host=$(hostname)
anonymous() {
	sed -E -e "s|$PWD|.|g" -e "s|${HOME:-/nonexistent}/|~/|g" -e "s/\"(name|host)\": ?\"$host\"/\"\1\": \"host\"/g" \
		-e 's/([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}/xx:xx:xx:xx:xx:xx/g' "$1"
}
anonymous "$out/machine.json" >"$out/publish/machine.json"
for name in mpi vm boot; do
	mkdir "$out/publish/$name"
	for file in run.json samples.jsonl; do
		anonymous "$out/$name/$file" >"$out/publish/$name/$file"
	done
done
# The boot of emulated VMs was measured from the host, as a native program.
[ -z "$emulated" ] || sed -i 's/"emulated": false/"emulated": true/' "$out/publish/boot/run.json"
(
	cd "$out/publish"
	"$NEARMETAL_PROGRAM" report mpi vm boot -o report.html
	"$NEARMETAL_PROGRAM" report mpi vm boot --json >report.json
)
tar -C "$out" -czf "$out/publish.tmp" publish
mv "$out/publish.tmp" "$out/publish.tar.gz"
echo "bench-vm: look at $out/publish/report.html; to publish: $out/publish.tar.gz" >&2
