#!/bin/sh
# fabric-sanitizers.sh [TOOL...]: the provider's own tests under sanitizers.
#
#   TOOL   address (with undefined), thread, valgrind (default: all three)
#
# FABRIC_TESTS lists parts of the names of the tests to run, "all" for every test
# (default: a choice, with the tests of hostile peers). Builds are kept in build/san-TOOL.
# Ends with 1 at the first report of a tool, or failed test. Under a tool a test may take
# FABRIC_PATIENCE times as long as otherwise (default: 5, with valgrind 20).
set -u

cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- address thread valgrind
tests=${FABRIC_TESTS:-tagged_ring_safe tagged_calls peek_claim multi_recv truncate threads rma_calls atomics coop killed_midway vandal flood_ forged hostile replayed withdrawn traffic stress_2 stress_4_safe stress_4_small}
[ "$tests" = all ] && tests=""

# build TOOL SANITIZE: the provider and its tests in build/san-TOOL.
build() {
	sh scripts/meson.sh "build/san-$1" --buildtype=debugoptimized -Db_sanitize="$2" -Db_lundef=false -Dmpicc=none || exit 1
	ninja --quiet -C "build/san-$1" fabric/libivshmem-fi.so test/fabric/fabric_tests \
		>"build/san-$1.log" 2>&1 || { cat "build/san-$1.log"; exit 1; }
}

# run TOOL [PROGRAM...]: the tests, with PROGRAM in front.
run() {
	tool=$1
	shift
	out=build/san-$tool.out
	start=$(date +%s)
	bad=0
	: >"$out"
	for t in ${tests:-""}; do
		FI_PROVIDER_PATH="$PWD/build/san-$tool/fabric" \
			"$@" "build/san-$tool/test/fabric/fabric_tests" $t >>"$out" 2>&1 || bad=1
	done
	ran=$(grep -c ' ok  ' "$out")
	if [ $bad != 0 ] || grep -Eq '^==[0-9]+==|ERROR: |WARNING: Thread|runtime error' "$out"; then
		grep -v ' ok  ' "$out" | head -n 60
		echo "$tool: failed ($out)"
		exit 1
	fi
	echo "$tool: $ran tests, no reports, $(($(date +%s) - start)) s${FABRIC_EXCEPT:+ (without $FABRIC_EXCEPT)}"
}

suppressions=$PWD/test/fabric/sanitizers.supp
patience=${FABRIC_PATIENCE:-}
for tool in "$@"; do
	export FABRIC_PATIENCE="${patience:-5}" FABRIC_EXCEPT=
	case $tool in
	address)
		build address address,undefined
		ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
			run address env
		;;
	thread)
		build thread thread
		# fork_opens: in a child of fork the thread that the provider starts there has the
		# address of its parent's, which the tool believes to be still there, and ends
		# ("dup thread with used id").
		FABRIC_EXCEPT=fork_opens
		TSAN_OPTIONS="exitcode=66 die_after_fork=0 suppressions=$suppressions.tsan" run thread env
		;;
	valgrind)
		command -v valgrind >/dev/null || { echo "no valgrind: apt-get install valgrind" >&2; exit 2; }
		build valgrind none
		# coop_end_forged: valgrind ends by an assertion of its own (m_signals.c) where a filter of system calls traps.
		FABRIC_EXCEPT=coop_end_forged
		FABRIC_PATIENCE=${patience:-20}
		FABRIC_MESSAGES=50 run valgrind valgrind --quiet --error-exitcode=66 \
			--leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
			--suppressions="$suppressions.valgrind"
		;;
	*)
		echo "fabric-sanitizers.sh: there is no tool $tool: address, thread or valgrind" >&2
		exit 2
		;;
	esac
done
