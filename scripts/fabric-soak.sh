#!/bin/sh
# fabric-soak.sh [SECONDS]: ranks of the provider that are killed and started again at
# random, and random traffic, for SECONDS (3600) in all. Each round has another seed,
# which is printed: FABRIC_SEED=N scripts/fabric-soak.sh 0 runs one round again.
set -eu
seconds=${1:-3600}
cd "$(dirname "$0")/.."
export FI_PROVIDER_PATH="$PWD/build/c/fabric"
tests=build/c/test/fabric/fabric_tests
seed=${FABRIC_SEED:-$(date +%s)}
end=$(($(date +%s) + seconds))
while :; do
	echo "== FABRIC_SEED=$seed"
	export FABRIC_SEED=$seed
	FABRIC_CHAOS=${FABRIC_CHAOS:-60} $tests chaos
	FABRIC_MESSAGES=${FABRIC_MESSAGES:-1000} $tests stress
	seed=$((seed % 1000000000 + 1))
	[ "$(date +%s)" -lt "$end" ] || break
done
