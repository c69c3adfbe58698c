#!/bin/sh
# fabtests.sh DIR [SET...]: libfabric's own test suite against the provider ivshmem,
# and beside it against libfabric's shm.
#
#   DIR   where fabtests of the libfabric to test with were installed: DIR/bin/fi_pingpong
#         or DIR/bin/fi_rdm_pingpong and DIR/bin/runfabtests.sh; DIR/lib and DIR/bin/fi_info
#         if it has a libfabric of its own, else the system's is tested with
#   SET   quick, standard, complex, threaded, ... (default: quick standard threaded)
#
# Nothing is fetched: build fabtests of any libfabric from 1.17 on first, with
#   ./autogen.sh && ./configure --prefix=DIR && make install    in libfabric's folder,
#   ./autogen.sh && ./configure --prefix=DIR --with-libfabric=DIR && make install
# in its folder fabtests.
#
# FABTESTS_PROVIDERS names what to test (default: "ivshmem shm"); FABTESTS_EXCLUDE_shm
# a file for runfabtests.sh -f. Ends with 1 if a test of ivshmem failed, or if fewer of
# its tests passed than shm's.
set -u

here=$(cd "$(dirname "$0")/.." && pwd)
dir=$(cd "${1:-/nonexistent}" 2>/dev/null && pwd)
if [ ! -x "$dir/bin/runfabtests.sh" ]; then
	echo "usage: fabtests.sh DIR [SET...]: there is no $dir/bin/runfabtests.sh; install fabtests to DIR first" >&2
	exit 2
fi
shift
[ $# -gt 0 ] || set -- quick standard threaded
provider=${FABTESTS_PROVIDER_PATH:-$here/build/c/fabric}
if [ ! -e "$provider/libivshmem-fi.so" ]; then
	echo "fabtests.sh: there is no $provider/libivshmem-fi.so; run make first" >&2
	exit 2
fi
log=${FABTESTS_LOG:-$here/build/fabtests}
mkdir -p "$log"
log=$(cd "$log" && pwd)
cd "$log" || exit 1	# the suite leaves its files where it runs

export PATH="$dir/bin:$PATH"
[ -d "$dir/lib" ] && export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FI_PROVIDER_PATH="+$provider/libivshmem-fi.so"
case $(fi_info --version 2>/dev/null | sed -n 's/^libfabric: //p') in
1.*) export FI_PROVIDER_PATH="$provider" ;;
esac
export FI_IVSHMEM_CORE="${FI_IVSHMEM_CORE:-none}"
# A region of its own: endpoints find each other by their ports, and another run has the same.
export FI_IVSHMEM_JOB="${FI_IVSHMEM_JOB:-fabtests-$$}"

bad=0
for set in "$@"; do
	shm=
	for p in ${FABTESTS_PROVIDERS:-shm ivshmem}; do
		exclude=$here/fabric/fabtests.exclude
		[ "$p" = shm ] && exclude=${FABTESTS_EXCLUDE_shm:-$dir/share/fabtests/test_configs/shm/shm.exclude}
		out=$log/$set-$p.log
		config=
		if [ "$set" = complex ]; then
			sed "s/prov_name: .*,/prov_name: $p,/" "$here/fabric/fabtests.complex" >"$log/complex-$p.test"
			config="-u $log/complex-$p.test"
		fi
		# shellcheck disable=SC2086
		runfabtests.sh -T "${FABTESTS_TIMEOUT:-120}" -t "$set" -N -v -f "$exclude" \
			-p "$dir/bin/" $config "$p" >"$out" 2>&1
		pass=$(sed -n 's/^# Total Pass *//p' "$out")
		fail=$(sed -n 's/^# Total Fail *//p' "$out")
		none=$(sed -n 's/^# Total Notrun.Excluded *//p' "$out")
		echo "$set over $p: ${pass:-0} passed, ${none:-0} not run, ${fail:-none} failed ($out)"
		if [ "$p" = shm ]; then
			shm=$pass
			continue
		fi
		# With -v the log says what a test that failed printed.
		grep -B 3 -E 'result: *Fail' "$out" | sed -n 's/^ *- name: */  /p'
		if [ "${fail:-1}" != 0 ] || [ "${pass:-0}" -lt "${shm:-0}" ]; then
			bad=1
		fi
	done
done
exit $bad
