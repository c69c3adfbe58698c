#!/bin/sh
# Runs a command in a Debian 13 of its own, in which the working tree is a copy: for `make
# test-debian13`, which tests nearmetal with that system's compilers, MPI libraries, QEMU and Slurm.
#
# usage: scripts/debian13.sh COMMAND [ARGUMENT...]	as root; the copy is the working directory
# environment: DEBIAN13		where it is (build/debian13); made where it is not, kept for the next time
#              DEBIAN13_MIRROR	mirror of Debian (the one that apt has)
#
# Everything mounted is so in a mount namespace of this script's alone, and what runs is in a PID
# namespace: both go with the script, by Ctrl-C and kill -9 too, and on the host itself nothing is
# ever mounted below the root.
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
dir=${DEBIAN13:-$top/build/debian13}
root=$dir/root

if [ "${1:-}" != --within ]; then
	[ $# -gt 0 ] || {
		sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
		exit 2
	}
	[ "$(id -u)" = 0 ] || {
		echo "debian13.sh needs root, for a root file system of its own" >&2
		exit 1
	}
	command -v debootstrap >/dev/null || {
		echo "installing: debootstrap"
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
	}
	exec unshare --mount --propagation private --pid --fork --kill-child -- sh "$0" --within "$@"
fi
shift
mount -t proc proc /proc

# The mirror that apt has of Debian's own, of whatever release.
mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' | head -1
}

mkdir -p "$dir"
# A module of its own, so that the go command does not look for ours in it.
echo "module debian13" >"$dir/go.mod"
exec 9>"$dir/lock"
flock -n 9 || {
	echo "$dir is in use" >&2
	exit 1
}
if [ ! -e "$root/etc/debian_version" ]; then
	mirror=${DEBIAN13_MIRROR:-$(mirror)}
	[ -n "$mirror" ] || {
		echo "apt knows no mirror of Debian here: apt-get update, or name one in DEBIAN13_MIRROR" >&2
		exit 1
	}
	echo "making $root"
	rm -rf "$root.new"
	debootstrap --variant=minbase --include=ca-certificates trixie "$root.new" "$mirror" >"$dir/debootstrap.log" 2>&1 || {
		tail -20 "$dir/debootstrap.log" >&2
		exit 1
	}
	rm -f "$root.new"/var/cache/apt/archives/*.deb
	mv "$root.new" "$root"
fi

# What this host needs to reach its mirrors.
mkdir -p "$root/usr/local/share/ca-certificates"
for f in /usr/local/share/ca-certificates/*.crt; do
	[ ! -e "$f" ] || cp "$f" "$root/usr/local/share/ca-certificates/"
done
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
uname -n >"$root/etc/hostname"

# The working tree as it is, without what is built; what was built in the copy stays.
mkdir -p "$root/src/nearmetal/build"
find "$root/src/nearmetal" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
(cd "$top" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
	tar --null --no-recursion -T - -cf -) | tar -C "$root/src/nearmetal" -xf -

find "$root/tmp" -mindepth 1 -delete
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"

# Of the environment, what says how mirrors are reached, and whether this is CI.
for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY GOPROXY GOSUMDB PIP_INDEX_URL CI NO_COLOR TERM; do
	eval "[ -z \"\${$v+set}\" ] || set -- \"$v=\$$v\" \"\$@\""
done
inside='umount -l /mnt; update-ca-certificates >/dev/null 2>&1; cd /src/nearmetal && exec "$@"'
cd "$root"
pivot_root . mnt # not chroot alone, in which there are no namespaces of users
# Not exec: this shell is the namespace's first process, and has to reap what others leave.
status=0
chroot . env -i HOME=/root USER=root LANG=C.UTF-8 \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c "$inside" sh env "$@" 9>&- || status=$?
exit $status
