#!/bin/sh
# ucx-gtest.sh [FILTER]: UCX's own suite (gtest) over the transport, and over UCX's own shared memory (posix) in the same build.
#
#   FILTER  as gtest has it, without the transport: test_ucp_tag*.*, uct_*.* (default: *)
#
# Fetches Debian's source of UCX by apt-get (2 MB), and builds it in build/ucx-gtest: half an hour on one CPU, once. In the
# fetched copy the transport ivshmem and posix take the place of all others: nothing of UCX is kept here. Needs gcc, g++,
# autoconf, automake, libtool and dpkg-dev. UCX_GTEST_SECONDS bounds a class of tests, and then each of its tests (default: 120).
# UCX_GTEST_RESUME=1 runs what has not run yet, so that runs in parts make one table. All of it takes ten minutes, on a busy machine an hour.
#
# Shows how many tests ran, failed and were skipped, and what differs. Ends with 1 if a test fails over ivshmem alone that
# test/ucx/gtest.exclude does not name.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
work=$top/build/ucx-gtest
lib=$top/build/c/ucx/libnearmetal-ucx.so
. "$top/scripts/fetch.sh"

die() {
	echo "ucx-gtest.sh: $*" >&2
	exit 1
}

# source_apt ARGUMENT...: apt-get over the source packages of the system's own mirrors, with lists of its own.
source_apt() {
	fetch_apt -o Dir::Etc::sourcelist="$work/list.sources" -o Dir::Etc::sourceparts=/nonexistent \
		-o Dir::State::lists="$work/apt" -o Dir::Cache="$work/apt" -o APT::Sandbox::User=root "$@"
}

fetch() {
	[ ! -e "$work/ucx/configure.ac" ] || return 0
	mkdir -p "$work/apt/partial"
	# UCX has files of Go's: they are no part of this module's ./...
	echo 'module ucx' >"$work/go.mod"
	# By its first stanza, which is that of the release itself.
	awk 'NR > 1 && /^$/ { exit } /^Types:/ { print "Types: deb-src"; next } !/^#/' \
		/etc/apt/sources.list.d/debian.sources >"$work/list.sources" || die "no debian.sources: this needs Debian"
	(cd "$work" && source_apt update >fetch.log 2>&1 && source_apt source --download-only ucx >>fetch.log 2>&1 &&
		rm -rf ucx && dpkg-source --no-check -x ucx_*.dsc ucx >>fetch.log 2>&1) ||
		{ tail -5 "$work/fetch.log" >&2; die "no source of UCX"; }
}

# Two transports in place of all. A line that ends with a backslash belongs to a macro.
patch() {
	[ ! -e "$work/ucx/.nearmetal" ] || return 0
	sed -i '/^#define UCT_TEST_NO_SELF_TLS /,/[^\\]$/c\
#define UCT_TEST_NO_SELF_TLS ivshmem, posix' "$work/ucx/test/gtest/uct/uct_test.h" &&
	sed -i -e '/^#define UCP_INSTANTIATE_TEST_CASE(_test_case)/,/[^\\]$/c\
#define UCP_INSTANTIATE_TEST_CASE(_test_case) \\\
    UCP_INSTANTIATE_TEST_CASE_TLS(_test_case, ivshmem, "ivshmem") \\\
    UCP_INSTANTIATE_TEST_CASE_TLS(_test_case, posix, "posix")' \
		-e '/^#define UCP_INSTANTIATE_TEST_CASE_GPU_AWARE(_test_case)/,/[^\\]$/c\
#define UCP_INSTANTIATE_TEST_CASE_GPU_AWARE(_test_case) UCP_INSTANTIATE_TEST_CASE(_test_case)' \
		"$work/ucx/test/gtest/ucp/ucp_test.h" &&
	[ "$(grep -hc ivshmem "$work/ucx/test/gtest/uct/uct_test.h" "$work/ucx/test/gtest/ucp/ucp_test.h" | paste -sd ' ')" = '1 1' ] ||
		die "the macros of this UCX are others"
	touch "$work/ucx/.nearmetal"
}

build() {
	[ ! -x "$work/ucx/b/test/gtest/gtest" ] || return 0
	mkdir -p "$work/ucx/b"
	# -Werror does not stand newer compilers than that UCX's.
	(cd "$work/ucx" && { [ -x configure ] || ./autogen.sh; } && cd b && { [ -e Makefile ] ||
		../configure --enable-gtest --enable-mt --without-valgrind --without-verbs --without-rdmacm --without-java --without-go \
			--without-cuda --without-rocm --disable-numa CXXFLAGS='-O1 -g0'; } &&
		sed -i 's/-Werror / /' test/gtest/Makefile && make -j2 && make -j2 -C test/gtest gtest) >"$work/build.log" 2>&1 ||
		{ tail -20 "$work/build.log" >&2; die "UCX does not build: $work/build.log"; }
}

[ -e "$lib" ] || die "no $lib: run make ucx"
fetch
patch
build
exec python3 "$top/scripts/ucx-gtest.py" "$work" "$lib" "$top/test/ucx/gtest.exclude" "${1:-*}"
