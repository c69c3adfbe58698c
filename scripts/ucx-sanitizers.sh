#!/bin/sh
# ucx-sanitizers.sh [address|thread] [TEST...]: the tests of the UCX transport (test/ucx) under a sanitizer, on the UCX of the
# system: address with undefined (default), or thread.
#
#   TEST   names of tests of ucx_ucp (default: all). Those of ucx_uct, with the hostile ones, always run.
#
# The builds are kept in build/san-TOOL. UCX itself is as it is: only what the transport and the tests do is watched. Ends
# with 1 if something is reported, or a test fails.
set -u

cd "$(dirname "$0")/.." || exit 1
tool=address
case ${1:-} in
address | thread)
	tool=$1
	shift
	;;
esac
sanitize=$tool
[ $tool = thread ] || sanitize=address,undefined
dir=build/san-$tool
log=$dir-ucx.log
sh scripts/meson.sh $dir --buildtype=debugoptimized -Db_sanitize=$sanitize -Db_lundef=false -Dmpicc=none || exit 1
ninja --quiet -C $dir ucx/libnearmetal-ucx.so fabric/libivshmem-fi.so test/ucx/ucx_ucp test/ucx/ucx_uct >"$log" 2>&1 ||
	{ cat "$log"; exit 1; }
# UCX keeps until its end what it has allocated, and that leads to more: leaks are not asked for.
export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
if [ $tool = thread ]; then
	# UCX takes the C library's madvise(), which a thread calls last, when the tool has forgotten it: it crashes there.
	export UCX_MEM_EVENTS=n UCX_MEM_MMAP_HOOK_MODE=none
	export TSAN_OPTIONS="exitcode=66 die_after_fork=0"
fi
status=0
LD_PRELOAD=$PWD/$dir/ucx/libnearmetal-ucx.so $dir/test/ucx/ucx_uct || status=1
LD_PRELOAD=$PWD/$dir/ucx/libnearmetal-ucx.so $dir/test/ucx/ucx_ucp "$@" || status=1
exit $status
