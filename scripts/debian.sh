#!/bin/sh
# debian.sh [--bare] RELEASE COMMAND [ARGUMENT...]: runs a command in a Debian or Ubuntu of its own, as root.
#
#   RELEASE   bookworm (Debian 12), trixie (13) or noble (Ubuntu 24.04)
#   --bare    a new root with nothing but git, make and ca-certificates, empty caches, and a fresh
#             clone of HEAD: what somebody has who just found the project. It is removed afterwards.
#
# Without --bare the root is kept below build/RELEASE for the next time, with what was installed
# and built there, and the working tree is copied into it as it is. The copy is the working directory.
#
# Everything mounted is so in a mount namespace of this script's alone, and what runs is in a PID
# namespace. Both go with the script, by Ctrl-C and kill -9 too. On the host itself nothing is
# ever mounted below the root.
#
# environment: DEBIAN_DIR      where the root is (build/RELEASE)
#              DEBIAN_MIRROR   mirror of Debian or Ubuntu (the one that apt has; of Ubuntu, what is beside Debian's there)
#              DEBIAN_LOG      a folder that is seen as /log inside
#              DEBIAN_PACKAGES a folder that is seen as /pk inside, read-only
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

if [ "${1:-}" != --within ]; then
	[ $# -ge 2 ] || {
		sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
		exit 2
	}
	[ "$(id -u)" = 0 ] || {
		echo "debian.sh needs root, for a root file system of its own" >&2
		exit 1
	}
	FETCH_LOG= sh "$top/scripts/install.sh" bootstrap # the log is named as the root sees it
	exec unshare --mount --propagation private --pid --fork --kill-child -- sh "$0" --within "$@"
fi
shift
bare=
if [ "$1" = --bare ]; then
	bare=1
	shift
fi
release=$1
shift
mount -t proc proc /proc
. "$top/scripts/fetch.sh"

dir=${DEBIAN_DIR:-$top/build/$release}
mkdir -p "$dir"
# A module of its own, so that the go command does not look for ours in it.
echo "module debian" >"$dir/go.mod"
exec 9>"$dir/lock"
flock -n 9 || {
	echo "$dir is in use" >&2
	exit 1
}

# ubuntu_mirror: the mirror that apt has of Ubuntu; on a Debian the folder ubuntu beside Debian's own.
ubuntu_mirror() {
	own=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Ubuntu' 'Component: main' 2>/dev/null | head -1)
	[ -n "$own" ] || own=$(fetch_mirror | sed -n 's,/debian/*$,/ubuntu,p')
	echo "$own"
}

# ubuntu_keys: a file with the keys of Ubuntu's archive. Debian 13 has a package of them, which Debian's own keys vouch for.
ubuntu_keys() {
	for keys in /usr/share/keyrings/ubuntu-archive-keyring.gpg "$dir/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"; do
		if [ -s "$keys" ]; then
			echo "$keys"
			return
		fi
	done
	fetch_deb trixie ubuntu-keyring "$dir/keys" >&2 && dpkg-deb -x "$dir"/keys/ubuntu-keyring_*.deb "$dir/keys" && echo "$keys"
}

# bootstrap FOLDER: a minimal system. What debootstrap fetched stays in $dir/archives.
bootstrap() {
	set -- "$1" --variant=minbase --include=ca-certificates,git,make
	system=Debian recipe=$release
	if [ "$release" = noble ]; then
		system=Ubuntu recipe=gutsy # an older debootstrap has no link of this name to it
		keys=$(ubuntu_keys) || exit 1
		set -- "$@" --components=main,universe --keyring="$keys"
	fi
	mirror=${DEBIAN_MIRROR:-$(if [ "$system" = Ubuntu ]; then ubuntu_mirror; else fetch_mirror; fi)}
	[ -n "$mirror" ] || {
		echo "apt knows no mirror of $system here: apt-get update, or name one in DEBIAN_MIRROR" >&2
		exit 1
	}
	made=$1
	shift
	echo "making $made"
	mkdir -p "$dir/archives"
	attempt() {
		rm -rf "$made.new"
		debootstrap --cache-dir="$dir/archives" "$@" "$release" "$made.new" "$mirror" "/usr/share/debootstrap/scripts/$recipe"
	}
	fetch_try debootstrap attempt "$@" || exit 1
	rm -f "$fetch_out" "$made.new"/var/cache/apt/archives/*.deb
	mv "$made.new" "$made"
}

root=$dir/root
if [ -n "$bare" ]; then
	root=$dir/bare
	rm -rf "$root"
	trap 'cd /; rm -rf --one-file-system "$root"' EXIT
	trap 'exit 130' INT TERM HUP
fi
[ -e "$root/etc/debian_version" ] || bootstrap "$root"

# What this host needs to reach its mirrors.
mkdir -p "$root/usr/local/share/ca-certificates"
for f in /usr/local/share/ca-certificates/*.crt; do
	[ ! -e "$f" ] || cp "$f" "$root/usr/local/share/ca-certificates/"
done
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
uname -n >"$root/etc/hostname"

if [ -n "$bare" ]; then
	mkdir "$root/src"
	git clone -q --no-local "$top" "$root/src/nearmetal"
	# Tests of captured machines read what stands beside the project, if it is there.
	[ ! -d "$top/../shared" ] || cp -RL "$top/../shared" "$root/src/shared"
else
	# The working tree as it is, without what is built; what was built in the copy stays.
	mkdir -p "$root/src/nearmetal/build"
	find "$root/src/nearmetal" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	(cd "$top" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
		tar --null --no-recursion -T - -cf -) | tar -C "$root/src/nearmetal" -xf -
fi

find "$root/tmp" -mindepth 1 -delete
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/log"
[ -z "${DEBIAN_LOG:-}" ] || mount --bind "$DEBIAN_LOG" "$root/log"
if [ -n "${DEBIAN_PACKAGES:-}" ]; then
	mkdir -p "$root/pk"
	mount --bind "$DEBIAN_PACKAGES" "$root/pk"
	mount -o remount,bind,ro "$root/pk"
fi

# Of the environment, what says how mirrors are reached, and whether this is CI.
for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY GOPROXY GOSUMDB PIP_INDEX_URL CI NO_COLOR TERM FETCH_LOG TEST_LOG; do
	eval "[ -z \"\${$v+set}\" ] || set -- \"$v=\$$v\" \"\$@\""
done
inside='umount -l /mnt; update-ca-certificates >/dev/null 2>&1; cd /src/nearmetal && exec "$@"'
# Not exec: this shell is the namespace's first process, and has to reap what others leave. A
# bare root is removed by this shell, which therefore stays outside of it.
status=0
unshare --mount -- sh -c 'cd "$0" && mkdir -p mnt && pivot_root . mnt && exec chroot . env -i HOME=/root USER=root LANG=C.UTF-8 \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c "$@"' "$root" "$inside" sh env "$@" 9>&- || status=$?
[ -z "$bare" ] || umount -l "$root"
exit $status
