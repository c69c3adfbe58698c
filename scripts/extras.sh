#!/bin/sh
# Installs what only the tests of MPI libraries over the provider need: LAMMPS of the
# distribution, which is linked to its Open MPI, Intel MPI's runtime as a wheel in
# build/venv/intel, and the source of mpi4py in build/mpi4py. As anybody but root LAMMPS has to be there.
# Run again it finds everything there and does nothing.
set -eu
export DEBIAN_FRONTEND=noninteractive
impi=2021.18.1

top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
if ! command -v lmp >/dev/null 2>&1; then
	if [ "$(id -u)" != 0 ]; then
		echo "extras: run as root: apt-get install lammps" >&2
		exit 1
	fi
	echo "extras: installing lammps" >&2
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends lammps >/dev/null
fi

dir=$top/build/venv/intel
mkdir -p "$top/build/venv"
exec 9>"$top/build/venv/.lock"
flock 9
if [ "$(cat "$dir/.wheels" 2>/dev/null)" != "$impi" ]; then
	echo "extras: $dir: impi-rt==$impi" >&2
	rm -rf "$dir"
	"${PYTHON:-python3}" -m venv "$dir"
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check \
		--only-binary :all: "impi-rt==$impi"
	echo "$impi" >"$dir/.wheels"
fi

# Here, where no test waits for the registry.
sh "$top/scripts/mpi4py-tests.sh" source
