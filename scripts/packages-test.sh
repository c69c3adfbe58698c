#!/bin/sh
# packages-test.sh [RELEASE...]: makes the packages, and installs, upgrades, removes and purges them in clean roots of
# Debian (bookworm and trixie): .deb by apt and dpkg, .rpm by rpm itself. Each command that a package brings is run there.
# Nothing may be left afterwards. As root; two minutes, and 60 MB a release the first time.
#
#   --roots [RELEASE...]   only makes the roots, keeps them in build/packages-test, and fetches what the packages are made with
#   --plan                 makes nothing: prints what the roots would fetch
#
# Everything mounted is so in a mount namespace of this script's alone.
#
# environment: PACKAGES_MADE=1   takes the packages that are there
#              PACKAGES_TWICE=1  makes them once more, which must be the same bytes
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$top"
. scripts/fetch.sh
out=$top/build/packages
kept=$top/build/packages-test

# root RELEASE: a root of that release, with what nearmetal's packages need of it.
root() {
	[ ! -e "$kept/$1.tar" ] || return 0
	rm -f "$kept/$1.new.tar"
	mmdebstrap --quiet --variant=minbase --aptopt='APT::Install-Recommends "false"' --include=ca-certificates,libfabric1,libgomp1,slurm-client \
		"$1" "$kept/$1.new.tar" "$(fetch_mirror)" && mv "$kept/$1.new.tar" "$kept/$1.tar"
}

if [ "${1:-}" = --plan ]; then
	for release in bookworm trixie; do
		[ -e "$kept/$release.tar" ] || echo "a root of Debian's $release, 60 MB to fetch, 200 MB on disk"
	done
	exit 0
fi

if [ "${1:-}" != --within ]; then
	[ "$(id -u)" = 0 ] || {
		echo "packages-test.sh needs root, for roots of its own" >&2
		exit 1
	}
	roots=
	[ "${1:-}" != --roots ] || {
		roots=1
		shift
	}
	[ $# -gt 0 ] || set -- bookworm trixie
	sh scripts/install.sh slurm packages
	mkdir -p "$kept"
	for release; do
		fetch_try "a root of Debian's $release" root "$release" || exit 1
		rm -f "$fetch_out"
	done
	[ -z "$roots" ] || exec sh scripts/packages.sh --fetch
	if [ -z "${PACKAGES_MADE:-}" ]; then
		PACKAGES_NEXT=1 sh scripts/packages.sh "$out" >/dev/null
	fi
	if [ -n "${PACKAGES_TWICE:-}" ]; then
		sh scripts/packages.sh "$kept/again" >/dev/null
		for f in "$out"/*.deb "$out"/*.rpm; do
			cmp "$f" "$kept/again/${f##*/}"
		done
		echo "packages: the same bytes twice"
		rm -rf "$kept/again"
	fi
	exec unshare --mount --propagation private --pid --fork --kill-child -- sh "$0" --within "$@"
fi
shift
mount -t proc proc /proc
work=$(mktemp -d)
# A root is in memory: dpkg syncs each file.
mount -t tmpfs -o mode=700 tmpfs "$work"
trap 'cd /; umount -l "$work"/*/proc "$work"/*/dev "$work"/*/pk "$work" 2>/dev/null || :; rmdir "$work"' EXIT

fail() {
	echo "packages-test.sh: $*" >&2
	exit 1
}

# what is in a root, but for what apt, dpkg and rpm keep for themselves
files() {
	(cd "$root" && find etc usr var -xdev | grep -Ev '^var/(lib/(dpkg|apt|rpm-test|systemd)|cache|log)(/|$)|^etc/(group|gshadow|ld.so.cache)-?$' | sort)
}

# left WHEN: what is there that was not before
left() {
	files >"$work/after"
	diff "$work/before" "$work/after" >"$work/diff" || {
		cat "$work/diff" >&2
		fail "$release: left after $1"
	}
}

# inside COMMAND...: runs it in the root
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

# works: what the packages bring, by running it
works() {
	[ "$(inside nearmetal version | head -1 | cut -d' ' -f2)" = "$(cat VERSION)" ] || fail "$release: nearmetal version says $(inside nearmetal version)"
	[ "$(readlink "$root/usr/bin/nearmetal-rsh")" = nearmetal ] || fail "$release: there is no nearmetal-rsh"
	[ "$(inside nearmetal-vsphere version | head -1 | cut -d' ' -f2)" = "$(cat VERSION)" ] || fail "$release: nearmetal-vsphere does not start"
	inside nearmetal check --json >"$work/check.json" || [ $? = 3 ] || fail "$release: nearmetal check failed"
	grep -q '"limits.nofile"' "$work/check.json" || fail "$release: nearmetal check says nothing of limits.nofile"
	inside nearmetal spec show --vms 2 >"$root/tmp/x.yaml" && inside nearmetal spec validate /tmp/x.yaml >/dev/null || fail "$release: nearmetal spec failed"
	rm "$root/tmp/x.yaml"
	inside /usr/libexec/nearmetal/nm_stream --help >/dev/null || fail "$release: nm_stream does not start"
	for f in usr/share/man/man1/nearmetal-run.1.gz usr/share/man/man7/fi_ivshmem.7.gz usr/share/doc/nearmetal/files.md \
		usr/share/bash-completion/completions/nearmetal usr/lib/nearmetal/libfabric/libivshmem-fi.so etc/security/limits.d/50-nearmetal.conf; do
		[ -s "$root/$f" ] || fail "$release: there is no /$f"
	done
	[ "$(stat -c '%U %a' "$root/var/lib/nearmetal")" = "root 700" ] || fail "$release: /var/lib/nearmetal is not root's own"
}

# changed: journals of changes in force, complete ones and one that is half made
changed() {
	for f in 000001-fix.done 000002-persist.done 000003-enable-vfs:0000:41:00.0.done 000004-bind:0000:41:00.1.done 000005-pages-7.n1:0.open; do
		echo "{}" >"$root/var/lib/nearmetal/$f"
	done
}

# warned KIND: the removal has named each of their commands once, and lost no journal
warned() {
	for words in "changes to this host stay in force" ": nearmetal host recover; nearmetal check --undo; nearmetal device disable-vfs 0000:41:00.0;" \
		"; nearmetal device release 0000:41:00.1"; do
		grep -Fq -- "$words" "$work/log" || {
			cat "$work/log" >&2
			fail "$release: removal of the $1 does not say $words"
		}
	done
	[ "$(grep -o 'check --undo' "$work/log" | wc -l)" = 1 ] || fail "$release: removal of the $1 says a command twice"
	[ "$(ls "$root/var/lib/nearmetal" | wc -l)" = 5 ] || fail "$release: removal of the $1 lost a journal"
}

for release; do
	root=$work/$release
	mkdir "$root"
	tar -C "$root" -xf "$kept/$release.tar"
	mkdir -p "$root/pk"
	mount --bind "$out" "$root/pk"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	case $release in bookworm) slurm=22.05 other=24.11 ;; *) slurm=24.11 other=22.05 ;; esac
	files >"$work/before"

	inside sh -c "apt-get -q install -y --no-install-recommends /pk/nearmetal_*.deb /pk/nearmetal-fabric_*.deb /pk/nearmetal-vsphere_*.deb /pk/nearmetal-slurm-${slurm}_*.deb" >"$work/log" 2>&1 || {
		tail -5 "$work/log" >&2
		fail "$release: the packages cannot be installed"
	}
	works
	[ -s "$root/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_nearmetal.so" ] || fail "$release: there is no plugin"
	if inside sh -c "apt-get -q -s install --no-install-recommends /pk/nearmetal-slurm-${other}_*.deb" >/dev/null 2>&1; then
		fail "$release: the plugin of Slurm $other can be installed beside Slurm $slurm"
	fi
	echo "# a site's own" >>"$root/etc/security/limits.d/50-nearmetal.conf"
	inside sh -c "dpkg -i /pk/next/nearmetal_*.deb /pk/next/nearmetal-fabric_*.deb /pk/next/nearmetal-vsphere_*.deb /pk/next/nearmetal-slurm-${slurm}_*.deb" >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		fail "$release: the packages cannot be upgraded"
	}
	works
	grep -q "a site's own" "$root/etc/security/limits.d/50-nearmetal.conf" || fail "$release: an upgrade overwrites what the site wrote"
	changed
	inside apt-get -q remove -y nearmetal nearmetal-fabric nearmetal-vsphere "nearmetal-slurm-$slurm" >"$work/log" 2>&1
	warned .deb
	[ ! -e "$root/usr/bin/nearmetal" ] || fail "$release: nearmetal is there after its removal"
	# A purge finds a change in force, and then none.
	inside dpkg -P nearmetal >/dev/null 2>&1
	[ -e "$root/var/lib/nearmetal/000001-fix.done" ] || fail "$release: a purge lost the journal of a change that is in force"
	inside sh -c "dpkg -i /pk/next/nearmetal_*.deb" >/dev/null 2>&1 || fail "$release: nearmetal cannot be installed again"
	rm "$root"/var/lib/nearmetal/0*
	inside dpkg -P nearmetal nearmetal-fabric nearmetal-vsphere "nearmetal-slurm-$slurm" >"$work/log" 2>&1
	grep -q "changes to this host" "$work/log" && fail "$release: removal speaks of changes where there are none"
	left "the packages' purge"
	echo "$release: .deb: installed, upgraded, removed, purged"

	# By rpm itself, which runs the scriptlets in the root. That the names of what they need are Debian's is no matter then.
	r() { rpm --force-debian --root "$root" --dbpath /var/lib/rpm-test --nodeps --nosignature "$@"; }
	# Folders that Red Hat's own packages have.
	for d in var/lib/rpm-test usr/lib64/slurm usr/lib/sysusers.d usr/lib/tmpfiles.d usr/share/licenses usr/share/pkgconfig usr/share/zsh/site-functions usr/share/fish/vendor_completions.d; do
		mkdir -p "$root/$d"
	done
	files >"$work/before"
	r -i "$out"/nearmetal-0*.rpm "$out"/nearmetal-fabric-*.rpm "$out"/nearmetal-vsphere-*.rpm "$out/nearmetal-slurm-$slurm"-*.rpm
	works
	[ -s "$root/usr/lib64/slurm/spank_nearmetal.so" ] || fail "$release: there is no plugin in /usr/lib64/slurm"
	echo "# a site's own" >>"$root/etc/security/limits.d/50-nearmetal.conf"
	r -U "$out"/next/nearmetal-0*.rpm "$out"/next/nearmetal-fabric-*.rpm "$out"/next/nearmetal-vsphere-*.rpm "$out/next/nearmetal-slurm-$slurm"-*.rpm
	works
	r -V nearmetal-fabric nearmetal-vsphere "nearmetal-slurm-$slurm" || fail "$release: rpm -V finds other files than it installed"
	changed
	r -e "nearmetal-slurm-$slurm" nearmetal-vsphere nearmetal-fabric nearmetal 2>"$work/log"
	warned .rpm
	rm -r "$root/var/lib/nearmetal"
	rm -f "$root/etc/security/limits.d/50-nearmetal.conf.rpmsave" # as rpm does with what a site wrote
	left "the rpm packages' removal"
	echo "$release: .rpm: installed, upgraded, verified, removed"
	umount -l "$root/proc" "$root/dev" "$root/pk"
	rm -rf --one-file-system "$root"
done

# What rpm says of them, against what it should be.
for p in nearmetal nearmetal-fabric nearmetal-vsphere nearmetal-slurm-22.05 nearmetal-slurm-24.11; do
	for f in "$out/$p"-[0-9]*.rpm; do
		echo "== $p"
		rpm -qp --nosignature --requires --recommends --suggests "$f"
		rpm -qp --nosignature --scripts "$f" | grep -c '^#!/bin/sh' || :
	done
done | sed "s/ $(cat VERSION)-1$/ VERSION-1/" >"$work/rpm"
diff "$top/packaging/rpm.expected" "$work/rpm" || fail "what rpm says of the packages differs from packaging/rpm.expected"
echo "rpm: requires and scriptlets as expected"
