#!/bin/sh
# redhat-tests.sh [PART...]: `make test-rhel`. Runs the demo and tests of VMs as root on a QEMU that is built with Red Hat's
# devices (scripts/qemu-redhat-build.sh), which takes the place of this host's in a mount namespace, with its firmware.
# So files come by virtiofs, and the region is an NVDIMM that guests map as devdax. Without PART all are run:
#
#   isolation   TestRedHatQEMU with each level of isolation, by root and by a user
#   passt       the same where QEMU has no user network: passt is that
#   demo        make demo
#   mpi         MPI over the region, and its atomics
#   verify      what verify reads back
#   faults      kills of QEMU and VMs
#   files       rare files, submounts, huge pages and nodes, with files by virtiofs
#   slurm       jobs of srun --vm, MPI in them
#
# It needs `make go virtiofsd slurm extras`. QEMU is built at the first call: some minutes.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || {
	echo "redhat-tests.sh: run it as root" >&2
	exit 1
}
[ $# -gt 0 ] || set -- isolation passt demo mpi verify faults files slurm
for part; do
	case $part in isolation | passt | demo | mpi | verify | faults | files | slurm) ;; *)
		echo "redhat-tests.sh: there is no part $part" >&2
		exit 2
		;;
	esac
done
virtiofsd=$(sh scripts/virtiofsd.sh)
qemu=$(sh scripts/qemu-redhat-build.sh)
"$qemu/qemu-kvm" --version | head -n 1

# there COMMAND...: runs it where that QEMU, its firmware and virtiofsd are this host's.
there() {
	unshare -m sh -c '
		mount --bind "$0/qemu-system-x86_64" "$(readlink -f "$(command -v qemu-system-x86_64)")"
		mount --bind "$0/../share/qemu" /usr/share/qemu
		mount --bind "$0/../share/seabios" /usr/share/seabios
		# Debian 12 has an old virtiofsd, which nearmetal does not take, in this place.
		for old in /usr/lib/qemu/virtiofsd; do
			[ ! -e "$old" ] || [ "$1" = "${old%/*}" ] || mount --bind "$1/virtiofsd" "$old"
		done
		shift
		exec "$@"' "$qemu" "$virtiofsd" "$@"
}

tests() { there go test -count=1 -v -timeout 60m -run "$1" "$2"; }

for part; do
	start=$(date +%s)
	case $part in
	isolation) NEARMETAL_REDHAT_QEMU=$qemu/qemu-kvm go test -count=1 -v -timeout 20m -run TestRedHatQEMU ./test/e2e ;;
	passt) NEARMETAL_REDHAT_QEMU=$qemu-passt/qemu-kvm go test -count=1 -v -timeout 20m -run TestRedHatPasst ./test/e2e ;;
	demo) there sh scripts/demo.sh ;;
	mpi) tests 'TestFabricThreeChannels|TestFabricOneSided|TestRegionAtomics' ./test/e2e ;;
	verify) tests 'TestVerifyAtStart|TestVerifyPins' ./test/e2e ;;
	faults) tests 'TestFaultQEMU|TestFaultVM' ./test/e2e ;;
	files) NEARMETAL_FILES=1 tests 'TestOddFiles/virtiofs|TestVirtiofs' ./test/e2e ;;
	slurm) tests 'TestShared$|TestMPI$|TestKills' ./test/slurm ;;
	esac
	echo "redhat-tests: $part: $(($(date +%s) - start)) s, load $(cut -d' ' -f1 /proc/loadavg)"
done
