#!/bin/sh
# `make bench`: nearmetal's own suites natively, over every MPI that is here and the provider,
# then the same programs in VMs (emulated ones on machines without KVM: for their results'
# correctness), and the report of both. BENCH_OUT is the folder of the results.
set -eu
cd "$(dirname "$0")/.."
nearmetal=$PWD/build/nearmetal
out=${BENCH_OUT:-nearmetal-bench/$(date +%Y%m%d-%H%M%S)}

# The kernels of build/c are those of mpicc; MPICH wants its own.
if command -v mpicc.mpich >/dev/null 2>&1; then
	make -s -C kernels MPICC=mpicc.mpich BUILD="$PWD/build/kernels/mpich" mpi
fi
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
mpis=
for name in openmpi mpich ivshmem; do
	if "$nearmetal" bench run osu/barrier --quick --repetitions 1 --warmup 0 --variants native --mpi "$name" \
		--out "$try/$name" -q >/dev/null 2>&1; then
		mpis=${mpis:+$mpis,}$name
	else
		echo "left out: $name, which does not run here" >&2
	fi
done
suites="osu stream"
for name in hpl/linpack lammps/eam; do
	if "$nearmetal" bench list "$name" --json | grep -q '"program"'; then
		suites="$suites $name"
	else
		echo "left out: $name, whose program is not here (apt-get install hpcc lammps)" >&2
	fi
done
# shellcheck disable=SC2086
"$nearmetal" bench run $suites --wait --quick --repetitions 5 --variants native ${mpis:+--mpi "$mpis"} --out "$out/native"
if [ "${BENCH_VM:-1}" != 0 ]; then
	# In VMs Open MPI takes the provider by itself; run.json has the channels that it used.
	# shellcheck disable=SC2086
	"$nearmetal" bench run $suites --wait --quick --repetitions 1 --warmup 0 --memory 1GiB --variants native,vm --out "$out/vm"
fi
if "$nearmetal" report --help >/dev/null 2>&1; then
	for run in "$out"/native "$out"/vm; do
		[ ! -d "$run" ] || "$nearmetal" report "$run"
	done
fi
