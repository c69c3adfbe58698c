#!/bin/sh
# openstack.sh install             makes an OpenStack of Debian's packages, and a guest's image (4 GB, some minutes)
# openstack.sh run COMMAND...      brings it up, runs COMMAND in it, and ends all of it
# openstack.sh enter COMMAND...    runs COMMAND in one that is up
#
# Keystone, Glance, Placement, Neutron and Nova with libvirt and emulated VMs, as Debian has them, without systemd. They
# have a root and namespaces of their own (mounts, PIDs, network, names), which end with this script, by kill -9 too.
# As root.
#
# environment: OPENSTACK_RELEASE  Debian's: bookworm has Nova of Zed (26.2), trixie of 2025.1 (31.0); bookworm
#              OPENSTACK_DIR   where the roots are (build/openstack)
#              DEBIAN_MIRROR   mirror of Debian (the one that apt has)
#              OPENSTACK_LOG   a folder that is seen as /log inside
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
dir=${OPENSTACK_DIR:-$top/build/openstack}
release=${OPENSTACK_RELEASE:-bookworm}
agent=linuxbridge
# Neutron has no Linux bridges from 2025.1 on. Its ports there are macvtap's, which are in no security group.
case $release in
bookworm) cloud=$dir/root ;;
*) cloud=$dir/$release agent=macvtap ;;
esac
services="keystone placement-api glance-api nova-api nova-conductor nova-scheduler nova-compute nova-compute-qemu
neutron-server neutron-$agent-agent libvirt-daemon-system libvirt-clients libvirt-daemon-driver-qemu qemu-system-x86
qemu-utils rabbitmq-server mariadb-server python3-openstackclient python3-osc-placement uwsgi-core uwsgi-plugin-python3
iptables ebtables genisoimage iproute2 procps curl python3-wsgi-intercept python3-oslotest python3-fixtures python3-testtools"
guest="linux-image-amd64 initramfs-tools systemd-sysv cloud-init udev kmod procps iproute2 netbase openmpi-bin libfabric1
libfabric-bin slurmd slurmctld slurm-client munge"

usage() {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
	exit 2
}

# within ROOT COMMAND...: runs COMMAND in a root, with mounts of its own.
within() {
	unshare --mount --propagation private -- sh -ec 'root=$1; shift
		mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
		exec chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$@"
}

# make RELEASE ROOT PACKAGE...: a minimal Debian with packages, by fetch.sh. What was fetched stays in $dir/archives.
make() {
	suite=$1 root=$2
	shift 2
	[ "$(cat "$root/.packages" 2>/dev/null)" != "$*" ] || return 0
	mkdir -p "$dir/archives"
	if [ ! -e "$root/etc/debian_version" ]; then
		from=${DEBIAN_MIRROR:-$(fetch_mirror)}
		[ -n "$from" ] || {
			echo "apt knows no mirror of Debian here: apt-get update, or name one in DEBIAN_MIRROR" >&2
			exit 1
		}
		bootstrap() {
			rm -rf "$root.new"
			debootstrap --variant=minbase --cache-dir="$dir/archives" --include=ca-certificates "$suite" "$root.new" "$from"
		}
		fetch_try debootstrap bootstrap || exit 1
		rm -f "$fetch_out"
		printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d"
		chmod +x "$root.new/usr/sbin/policy-rc.d"
		echo force-unsafe-io >"$root.new/etc/dpkg/dpkg.cfg.d/unsafe"
		echo 'path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*' >"$root.new/etc/dpkg/dpkg.cfg.d/small"
		# What a VM's kernel needs to find its disk: a small initramfs starts sooner.
		echo force-confold >"$root.new/etc/dpkg/dpkg.cfg.d/keep"
		mkdir -p "$root.new/etc/initramfs-tools/conf.d"
		echo MODULES=list >"$root.new/etc/initramfs-tools/conf.d/small"
		printf 'virtio_pci\nvirtio_blk\next4\n' >"$root.new/etc/initramfs-tools/modules"
		mv "$root.new" "$root"
	fi
	# What this host needs to reach its mirrors.
	mkdir -p "$root/usr/local/share/ca-certificates"
	for f in /usr/local/share/ca-certificates/*.crt; do
		[ ! -e "$f" ] || cp "$f" "$root/usr/local/share/ca-certificates/"
	done
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	packages() {
		within "$root" sh -ec 'update-ca-certificates >/dev/null 2>&1
			apt-get -q update; apt-get -q install -y --no-install-recommends "$@"; apt-get clean' sh "$@"
	}
	fetch_try "apt-get install" packages "$@" || exit 1
	rm -f "$fetch_out"
	echo "$*" >"$root/.packages"
}

case ${1:-} in
install | run) ;;
enter)
	[ $# -ge 2 ] || usage
	shift
	exec nsenter -t "$(cat "$cloud.pid")" -m -p -n -u -r -w -- env -i HOME=/root LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" \
		PATH=/nm:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c '. /etc/nm/admin; cd /root; exec "$@"' sh "$@"
	;;
--within) ;;
*) usage ;;
esac
[ "$(id -u)" = 0 ] || {
	echo "openstack.sh needs root, for a root file system of its own" >&2
	exit 1
}
mkdir -p "$dir"

if [ "$1" = install ]; then
	sh "$top/scripts/install.sh" bootstrap
	. "$top/scripts/fetch.sh"
	make "$release" "$cloud" $services
	make bookworm "$dir/guest" $guest
	exit
fi
if [ "$1" = run ]; then
	[ $# -ge 2 ] || usage
	[ -e "$cloud/.packages" ] && [ -e "$dir/guest/.packages" ] || {
		echo "openstack.sh: say openstack.sh install first" >&2
		exit 1
	}
	# A module of its own, so that the go command does not look for ours in it.
	echo "module openstack" >"$dir/go.mod"
	exec 9>"$cloud.lock"
	flock -n 9 || {
		echo "$cloud is in use" >&2
		exit 1
	}
	shift
	exec unshare --mount --propagation private --pid --fork --kill-child --net --uts -- sh "$0" --within "$@"
fi

# Within the namespaces.
shift
root=$cloud
# /proc is still the outer one: this is what enter looks for.
read -r pid rest </proc/self/stat
echo "$pid" >"$cloud.pid"
hostname aio
ip link set lo up
# The provider's network: what is on nm-up is in the VMs' network.
ip link add nm-up type veth peer name nm-phys
ip link set nm-up up
ip link set nm-phys up
ip address add 10.77.0.1/24 dev nm-up
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t sysfs sysfs "$root/sys" # of this network namespace, and without cgroups
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
rm -rf "$root/nm"
mkdir -p "$root/nm" "$root/log" "$root/guest"
cp "$top"/test/openstack/aio/* "$top/docs/openstack.md" "$root/nm/"
cp -r "$top/slurm/examples/cloud" "$top/slurm/examples/mpi.conf" "$top/internal/backend/openstack/testdata/golden" "$root/nm/"
[ -z "${OPENSTACK_LOG:-}" ] || mount --bind "$OPENSTACK_LOG" "$root/log"
mount --bind "$dir/guest" "$root/guest"
mkdir -p "$root/build"
mount --bind "$top/build" "$root/build"
cd "$root"
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
# Not exec: this shell is the namespace's first process, and has to reap what others leave.
status=0
env -i HOME=/root USER=root LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" PATH=/nm:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	bash /nm/up.sh "$@" || status=$?
exit $status
