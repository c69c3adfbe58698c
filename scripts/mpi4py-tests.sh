#!/bin/sh
# mpi4py-tests.sh [MPI...]: mpi4py's own test suite over the provider ivshmem.
#
#   MPI   openmpi, mpich (default: both), as scripts/wheels.sh has put them into build/venv; ucx: Open MPI over UCX's
#         transport ivshmem (pml ucx) in place of the provider; posix: the same over UCX's own shared memory
#
# MPI4PY_RANKS is a list of how many ranks (default: "2 4"), MPI4PY_ARGS more arguments
# for the suite ("-i test_p2p": one module), MPI4PY_DIR an unpacked source of mpi4py; without
# it scripts/wheels.sh fetches that of PyPI. Two to four minutes for each MPI and number of ranks.
# Left out is what fabric/mpi4py.exclude names. Ends with 1 if a test fails.
set -u

here=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^mpi4py=//p' "$here/scripts/wheels.sh")
venv=${MPI4PY_VENV:-$here/build/venv}
work=$here/build/mpi4py
export FI_PROVIDER_PATH="${FI_PROVIDER_PATH:-$here/build/c/fabric}"
export FI_IVSHMEM_CORE=none
mkdir -p "$work"

suite=${MPI4PY_DIR:-$work/mpi4py-$version}
if [ ! -e "$suite/test/main.py" ]; then
	sh "$here/scripts/wheels.sh" source || exit 1
fi

run_openmpi() {
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
		PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 10 "${MPI4PY_TIMEOUT:-900}" \
		"$venv/openmpi/bin/mpirun" --oversubscribe -n "$1" --mca pml cm --mca mtl ofi \
		--mca opal_common_ofi_provider_include ivshmem --mca osc ^ucx \
		"$venv/openmpi/bin/python" "$suite/test/main.py" --xfile "$work/exclude" ${MPI4PY_ARGS:-}
}

# All through the provider: without MPICH's own shared memory.
run_mpich() {
	FI_PROVIDER=ivshmem MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 \
		timeout -k 10 "${MPI4PY_TIMEOUT:-900}" "$venv/mpich/bin/mpiexec" -n "$1" \
		"$venv/mpich/bin/python" "$suite/test/main.py" --xfile "$work/exclude" ${MPI4PY_ARGS:-}
}

# over_ucx TRANSPORTS RANKS: Open MPI's pml ucx, by these transports alone.
over_ucx() {
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
		PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_TLS=$1 timeout -k 10 "${MPI4PY_TIMEOUT:-900}" \
		"$venv/openmpi/bin/mpirun" --oversubscribe -n "$2" --mca pml ucx --mca opal_common_ucx_tls any \
		--mca opal_common_ucx_devices any --mca osc ucx \
		"$venv/openmpi/bin/python" "$suite/test/main.py" --xfile "$work/exclude" ${MPI4PY_ARGS:-}
}

run_posix() {
	over_ucx posix,self "$1"
}

run_ucx() {
	region=/dev/shm/nearmetal-mpi4py-$$
	"$here/build/c/test/bench/fabric/c/ucp_bench" region "$region" 512 || return 1
	LD_PRELOAD=$here/build/c/ucx/libnearmetal-ucx.so NEARMETAL_REGION=$region NEARMETAL_UCX_NEAR=1 over_ucx ivshmem,ivshmem_m,self "$1"
	set -- $?
	rm -f "$region"
	return "$1"
}

[ $# -gt 0 ] || set -- openmpi mpich
bad=0
for mpi in "$@"; do
	for n in ${MPI4PY_RANKS:-2 4}; do
		log=$work/$mpi-$n.log
		sed -n "s/^$mpi //p" "$here/fabric/mpi4py.exclude" >"$work/exclude"
		(cd "$work" && "run_$mpi" "$n") >"$log" 2>&1
		ranks=$(grep -a -Eo 'Ran [0-9]+ tests in' "$log" | wc -l)
		failed=$(grep -a -Eo '(FAIL|ERROR): test.*' "$log" | sort -u)
		echo "$mpi, $n ranks: $(grep -a -Eo 'Ran [0-9]+ tests in [0-9.]+s' "$log" | head -n 1) ($log)"
		if [ "$ranks" -lt "$n" ]; then
			echo "  $((n - ranks)) ranks did not come to the end:"
			tail -n 5 "$log"
			bad=1
		fi
		if [ -n "$failed" ]; then
			printf '%s\n' "$failed" | sed 's/^/  /'
			bad=1
		fi
	done
done
exit $bad
