#!/bin/sh
# `make demo`: one MPI program and two benchmarks, compiled once, natively and in two VMs.
set -eu
cd "$(dirname "$0")/.."
repository=$PWD
nearmetal=$repository/build/nearmetal
kernels=$PWD/build/c/kernels
work=$(mktemp -d)
NEARMETAL_RUNTIME_DIR=$work/run
export NEARMETAL_RUNTIME_DIR
trap 'status=$?; "$nearmetal" -q down --all 2>/dev/null || true; rm -rf "$work"; exit $status' EXIT
trap 'exit 130' INT TERM HUP
if [ "$(id -u)" = 0 ]; then # Open MPI otherwise refuses to start as root
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpirun=$(command -v mpirun.openmpi || command -v mpirun)

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
title() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
# A command as a user would type it, then what it prints.
show() {
	printf '$ %s\n' "$*" | sed "s,$nearmetal,nearmetal,g; s,$kernels/,,g; s,$mpirun,mpirun,g"
	"$@"
}

cd "$work"
title "A solver, natively"
show "$mpirun" -n 2 --oversubscribe "$kernels/nm_cg" --grid 128 | tee native.txt
title "The same binary in two VMs: boot, solve, tear down"
show "$nearmetal" run --vms 2 --memory 1GiB -- "$mpirun" -n 2 "$kernels/nm_cg" --grid 128 | tee vms.txt
# Everything but where and how fast must be the same, to the last bit.
result() { grep -E '^(iterations|residual|error|checksum) ' "$1"; }
result native.txt >native.result
result vms.txt >vms.result
if diff native.result vms.result; then
	echo "The two results are identical to the last bit."
else
	echo "demo: the results differ" >&2
	exit 1
fi

title "Latency and bandwidth, natively"
show "$mpirun" -n 2 --oversubscribe "$kernels/nm_latency" --sizes 0:4096
show "$mpirun" -n 2 --oversubscribe "$kernels/nm_bw" --sizes 4096:1048576
title "Latency and bandwidth between two VMs, over the region that they share"
show "$nearmetal" up --vms 2 --memory 1GiB --name demo
show "$nearmetal" ps demo
accel=$("$nearmetal" ps demo --json | sed -n 's/.*"accel": "\(tcg\|kvm\)".*/\1/p' | head -1)
mark=
if [ "$accel" = tcg ]; then mark=' (emulated: timings are not meaningful)'; fi
(
eval "$("$nearmetal" env demo)"
echo "In two VMs$mark:"
show "$mpirun" -n 2 "$kernels/nm_latency" --sizes 0:4096 --iterations 200 --warmup 20
echo "In two VMs$mark:"
show "$mpirun" -n 2 "$kernels/nm_bw" --sizes 4096:1048576 --iterations 5 --warmup 1
)
title "The memory that the VMs share"
echo "In two VMs$mark:"
"$nearmetal" exec -n --vm vm1 "$kernels/region_pingpong" --role b >/dev/null &
show "$nearmetal" exec -n --vm vm0 "$kernels/region_pingpong" --role a
wait
show "$nearmetal" down demo

title "Natively and in VMs, alternating, and the report"
results=$repository/build/demo
rm -rf "$results"
if [ "$accel" = kvm ]; then
	show "$nearmetal" -q bench run osu/latency --wait --repetitions 5 --memory 1GiB --set sizes=8:4096 --out "$results"
else
	show "$nearmetal" -q bench run osu/latency --wait --quick --repetitions 3 --warmup 0 --memory 1GiB --set sizes=8:4096 --set iterations=200 --out "$results"
fi
show "$nearmetal" -q report "$results"
[ "$accel" = kvm ] || echo "No verdict: without KVM the VMs were emulated, and their times mean nothing."
echo "The report: $results/report.html"
