#!/bin/sh
# ubuntu-tests.sh [PART...]: `make test-ubuntu`. Makes a root of Ubuntu 24.04 (scripts/debian.sh), installs the packages of
# `make packages` there, and lets an ordinary user run them, as root on the host. Without PART all are run:
#
#   packages  apt installs nearmetal and nearmetal-fabric with what they need; the user runs nearmetal check
#   kernel    /boot/vmlinuz-* is closed to the user; nearmetal kernel fetch gets him a copy, which a VM boots
#   build     make, with Ubuntu's compilers and Go
#   mpi       the user's MPI program in two VMs, over the region, with files by 9p and by virtiofs
#   demo      make demo's script, by the user
#
# kernel needs packages; mpi and demo need all before them. The host's kernel is not Ubuntu's: what AppArmor
# forbids there is not tried.
set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" != --within ]; then
	[ "$(id -u)" = 0 ] || {
		echo "ubuntu-tests.sh: run it as root" >&2
		exit 1
	}
	[ -n "$(ls build/packages/nearmetal_*.deb 2>/dev/null)" ] || {
		echo "ubuntu-tests.sh: there are no packages: make packages" >&2
		exit 1
	}
	DEBIAN_PACKAGES=$PWD/build/packages exec sh scripts/debian.sh noble sh scripts/ubuntu-tests.sh --within "$@"
fi
shift
[ $# -gt 0 ] || set -- packages kernel build mpi demo
. scripts/fetch.sh
. /etc/os-release
[ "$ID-$VERSION_ID" = ubuntu-24.04 ] || {
	echo "ubuntu-tests.sh: this is $ID $VERSION_ID, not Ubuntu 24.04" >&2
	exit 1
}
user=metal
home=/home/$user
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
	echo "ubuntu-tests.sh: $part: $*" >&2
	exit 1
}

# as_user COMMAND...: runs it as the ordinary user, in his home.
as_user() {
	(cd "$home" && exec runuser -u "$user" -- env HOME="$home" USER="$user" XDG_RUNTIME_DIR= "$@")
}

# wants PATTERN COMMAND...: the user's command succeeds and says that. What it says is shown.
wants() {
	pattern=$1
	shift
	as_user "$@" >"$log" 2>&1 || {
		cat "$log" >&2
		fail "$* failed"
	}
	cat "$log"
	grep -Eq "$pattern" "$log" || fail "$* does not say $pattern"
}

packages() {
	fetch_try "apt-get update" fetch_apt update
	rm -f "$fetch_out"
	# Recommended packages would bring displays and sound; those that nearmetal itself recommends are named.
	fetch_packages /pk/nearmetal_*.deb /pk/nearmetal-fabric_*.deb qemu-system-x86 virtiofsd openmpi-bin linux-image-virtual
	# Each run begins with a user who has nothing.
	! id "$user" >/dev/null 2>&1 || userdel --remove "$user" 2>/dev/null
	useradd --create-home --shell /bin/sh "$user"
	[ "$(as_user nearmetal version | head -1 | cut -d' ' -f2)" = "$(cat VERSION)" ] || fail "nearmetal version says $(as_user nearmetal version)"
	# It ends with 1 where something keeps VMs from native speed, as here.
	as_user nearmetal check --problems || [ $? = 3 ] || fail "nearmetal check failed"
	as_user qemu-system-x86_64 --version | head -1
	as_user /usr/libexec/virtiofsd --version
}

kernel() {
	newest=$(ls /boot/vmlinuz-* | sort -V | tail -1)
	version=${newest#/boot/vmlinuz-}
	! as_user test -r "$newest" || fail "$newest is open to the user"
	if as_user nearmetal run --memory 512MiB -- true >"$log" 2>&1; then
		fail "a VM started though $newest is closed"
	fi
	cat "$log"
	grep -q "nearmetal kernel fetch" "$log" || fail "nothing is said of nearmetal kernel fetch"
	wants "$version" nearmetal kernel fetch
	wants "^$version\$" nearmetal run --memory 512MiB -- uname -r
}

build() {
	make
	# So that the demo may write its results there.
	chown -R "$user:" build
}

mpi() {
	for files in 9p virtiofs; do
		echo "files: $files" >"$home/$files.yaml"
		wants '[1-9][0-9]* ranks of other VMs, [1-9][0-9]* lines' \
			env FI_LOG_LEVEL=info FI_LOG_PROV=ivshmem FI_LOG_SUBSYS=ep_ctrl \
			nearmetal run -v -f "$home/$files.yaml" --vms 2 --memory 512MiB -- \
			mpirun -n 2 "$PWD/build/c/kernels/nm_latency" --sizes 8:4KiB --iterations 100
		grep -q "by $files" "$log" || fail "files did not come by $files"
		grep -q '^# rank 1: vm1' "$log" || fail "rank 1 was not in the second VM"
	done
}

demo() { wants 'identical to the last bit' sh "$PWD/scripts/demo.sh"; }

for part; do
	case $part in packages | kernel | build | mpi | demo) ;; *)
		echo "ubuntu-tests.sh: there is no part $part" >&2
		exit 2
		;;
	esac
	start=$(date +%s)
	"$part"
	echo "ubuntu-tests: $part: $(($(date +%s) - start)) s"
done
