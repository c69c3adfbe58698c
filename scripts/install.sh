#!/bin/sh
# install.sh [--plan] [GROUP...]: installs the packages that a part of nearmetal is built, tested
# or shown with, on Debian 12 or 13 and Ubuntu 24.04. As root it runs apt-get; as anybody else it
# says what to ask root for. Run again it finds everything there and does nothing.
#
#   base       what builds nearmetal, runs a VM, and the MPI libraries of the distribution (default)
#   slurm      Slurm's daemons, none of which is started
#   sacct      slurmdbd and MariaDB, for what sacct says of jobs
#   fortran    a compiler of Fortran, for MPI programs in it
#   lammps     a real program that is linked to the distribution's Open MPI
#   hosts      an sshd, for the tests that reach hosts by ssh
#   roots      skopeo, for roots that are images of a registry
#   qcow2      guestfish, for roots that are disks of a cloud
#   libvirt    libvirtd, which is not started, and what checks domains' XML
#   shells     zsh and fish, whose completions are tried in them
#   browser    Chromium without a screen, which the report is looked at in
#   ucx        ucx_perftest, for make test-ucx-programs
#   bench      HPCC, for make bench; without root it is left out of the run
#   clang      the fuzzer and the checker of C
#   packages   rpm and mmdebstrap, for the tests of packages
#   bootstrap  debootstrap, for a Debian of its own (make rehearse, make test-debian13)
#
#   --plan     installs nothing: prints what is missing and how much is to be fetched
set -eu
. "$(dirname "$0")/fetch.sh"
. /etc/os-release

plan=
if [ "${1:-}" = --plan ]; then
	plan=1
	shift
fi
[ $# -gt 0 ] || set -- base

# packages GROUP: prints the group's packages.
packages() {
	case $1 in
	base)
		# What runs a VM; what compiles; what MPI programs are tried with; what draws pictures as viewers do.
		echo "qemu-system-x86 qemu-utils passt
		gcc libc6-dev meson ninja-build pkg-config make git ca-certificates
		openmpi-bin libopenmpi-dev mpich libmpich-dev libfabric-dev libfabric-bin
		python3 python3-venv numactl hwloc-nox iproute2 openssh-client procps busybox-static tmux xz-utils squashfs-tools umoci
		ibverbs-utils ibverbs-providers perftest librsvg2-bin"
		;;
	slurm) echo "slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm-dev munge" ;;
	sacct) echo "slurmdbd slurm-wlm-mysql-plugin mariadb-server-core" ;;
	fortran) echo "gfortran" ;; # Debian 12's MPI packages depend on it, Debian 13's do not
	lammps) echo "lammps" ;;
	hosts) echo "openssh-server sudo" ;;
	roots) echo "skopeo" ;; # with base's mksquashfs and umoci, what unpacks images of roots
	qcow2) echo "guestfish fdisk e2fsprogs" ;;
	libvirt)
		echo "libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu libxml2-utils"
		[ "$ID-${VERSION_ID:-}" = debian-12 ] || echo libvirt-daemon-driver-network # a part of libvirt-daemon there
		;;
	shells) echo "zsh fish" ;;
	browser)
		for browser in chromium-headless-shell chromium google-chrome; do
			command -v "$browser" >/dev/null 2>&1 && return
		done
		echo "chromium-headless-shell fonts-dejavu-core"
		;;
	ucx) echo "ucx-utils" ;;
	bench) echo "hpcc lammps" ;;
	clang) [ "$ID" = debian ] && [ "$VERSION_ID" = 12 ] && echo "clang clang-tidy libclang-rt-14-dev" || echo "clang clang-tidy libclang-rt-dev" ;;
	packages) echo "rpm mmdebstrap" ;;
	bootstrap) echo "debootstrap" ;;
	*)
		echo "install.sh: there is no group $1: base, slurm, sacct, fortran, lammps, hosts, roots, qcow2, libvirt, shells, browser, ucx, bench, clang, packages or bootstrap" >&2
		exit 2
		;;
	esac
}

# kernel_missing: is there no kernel with its modules? Any will do.
kernel_missing() {
	for k in /boot/vmlinuz-*; do
		[ ! -d "/lib/modules/${k#/boot/vmlinuz-}/kernel" ] || return 1
	done
}

# go_missing: is there no Go 1.22 or newer? Go itself fetches a newer toolchain if go.mod asks for one.
go_missing() {
	command -v go >/dev/null 2>&1 || return 0
	v=$(go env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')
	[ "${v:-0}" -lt 22 ] 2>/dev/null
}

need='' backports=''
for group; do
	list=$(packages "$group") || exit 2
	for p in $list; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || need="$need $p"
	done
	[ "$group" = base ] || continue
	if kernel_missing; then
		kernel=linux-image-amd64
		[ "$ID" != ubuntu ] || kernel=linux-image-virtual
		need="$need $kernel"
	fi
	if go_missing; then
		# Debian 12 itself has Go 1.19. Its backports have one that is new enough.
		if [ "$ID-${VERSION_ID:-}" = debian-12 ]; then
			backports=golang-go
		else
			need="$need golang-go"
		fi
	fi
done
[ -n "$need$backports" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "missing:$need${backports:+ Go 1.22 or newer}" >&2
	echo "run as root: sh scripts/install.sh $*" >&2
	exit 1
fi

if [ -n "$backports" ] && ! grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d; then
	# A machine has the one kind of list or the other.
	{
		sed -n 's/^deb \(\[.*\] \)\?\(\S*\) bookworm main.*/deb \1\2 bookworm-backports main/p' /etc/apt/sources.list 2>/dev/null || true
		sed -n 's/^URIs: \(\S*debian\/\?\)$/deb \1 bookworm-backports main/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true
	} | head -1 >/etc/apt/sources.list.d/nearmetal-backports.list
fi

start=$(date +%s)
fetch_try "apt-get update" fetch_apt update
bytes=$(sed -n 's/^Fetched \([0-9.,]*\) \([kMG]\?B\) .*/\1 \2/p' "$fetch_out" | tr -d , |
	awk '{ u = $2 == "MB" ? 1e6 : $2 == "kB" ? 1e3 : 1; printf "%d", $1 * u }')
rm -f "$fetch_out"
fetch_note Debian "$start" "${bytes:-0}" "lists of packages"

if [ -n "$plan" ]; then
	# shellcheck disable=SC2086
	fetch_apt install --no-install-recommends -s -o APT::Get::Assume-No=true ${backports:+-t bookworm-backports} $need $backports 2>/dev/null |
		awk '/newly installed/ { n = $3 } END { printf "%d Debian packages", n }'
	# shellcheck disable=SC2086
	fetch_apt install --no-install-recommends --print-uris -y $need $backports 2>/dev/null |
		awk '/^'\''/ { sum += $3 } END { printf ", %d MB to fetch", sum / 1e6 }'
	# shellcheck disable=SC2086
	fetch_apt install --no-install-recommends --assume-no $need $backports 2>/dev/null |
		sed -n 's/^After this operation, \(.*\) of additional disk space.*/, \1 on disk/p' | tr -d '\n'
	echo ":$need${backports:+ $backports}"
	exit 0
fi

echo "installing:$need${backports:+ $backports}"
# Packages would start daemons of their own. A policy forbids that meanwhile.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
# shellcheck disable=SC2086
[ -z "$need" ] || fetch_packages $need
[ -z "$backports" ] || fetch_packages -t bookworm-backports $backports
! echo " $* " | grep -q ' base ' || ! go_missing || {
	echo "apt has no Go 1.22 or newer: install one by hand" >&2
	exit 1
}
