#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (10) each: Go's own, and the C ones where
# clang is there.
set -eu
seconds=${FUZZ_SECONDS:-10}
go list ./... | while read -r pkg; do
	dir=$(go list -f '{{.Dir}}' "$pkg")
	grep -hos '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u |
		while read -r target; do
			echo "== $pkg $target"
			go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$pkg" </dev/null
		done
done

if ! command -v clang >/dev/null 2>&1; then
	echo "no clang: the agent's own fuzz targets are left out (apt-get install clang libclang-rt-14-dev)"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd guest
for target in config mux; do
	echo "== guest/fuzz/fuzz_$target.c"
	clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -o "$work/$target" "fuzz/fuzz_$target.c" \
		buf.c config.c fields.c frame.c log.c loop.c mux.c
	"$work/$target" -max_total_time="$seconds" -print_final_stats=0 2>&1 | tail -2
done
cd ../slurm
echo "== slurm/fuzz/fuzz_options.c"
clang -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -o "$work/options" fuzz/fuzz_options.c \
	multiprog.c request.c values.c
"$work/options" -max_total_time="$seconds" -print_final_stats=0 2>&1 | tail -2

# The provider over a region that is spoiled while two endpoints talk.
if [ ! -e /usr/include/rdma/fabric.h ]; then
	echo "no headers of libfabric: the provider's fuzz target is left out (apt-get install libfabric-dev)"
	exit 0
fi
cd ../fabric
echo "== fabric/fuzz/fuzz_region.c"
clang -std=gnu11 -g -O1 -D_GNU_SOURCE -fno-strict-aliasing -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=undefined -I../include -o "$work/region" fuzz/fuzz_region.c ./*.c \
	-lfabric -lpthread -ldl
"$work/region" -max_total_time="$seconds" -max_len=600 -len_control=0 -timeout=30 \
	-print_final_stats=0 2>&1 | tail -2
