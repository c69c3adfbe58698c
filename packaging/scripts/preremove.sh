#!/bin/sh
# deb: remove or upgrade; rpm: 0 (removed) or 1 (upgraded).
# Each change to this host that is in force has a journal: .open while it is made, .done once it is complete.
set -e
case ${1:-} in
remove | 0) ;;
*) exit 0 ;;
esac
undo=
for f in /var/lib/nearmetal/[0-9]*.open /var/lib/nearmetal/[0-9]*.done; do
	[ -e "$f" ] || continue
	name=${f##*/}
	name=${name#*-}
	case $name in
	fix.done | persist.done) how="nearmetal check --undo" ;;
	openstack-region.done) how="nearmetal host openstack-region remove" ;;
	enable-vfs:*.done) how="nearmetal device disable-vfs ${name#enable-vfs:}" ;;
	bind:*.done | set:*.done | disable-vfs:*.done) how="nearmetal device release ${name#*:}" ;;
	*) how="nearmetal host recover" ;;
	esac
	how=${how%.done}
	case "$undo; " in
	*"; $how; "*) ;;
	*) undo="$undo; $how" ;;
	esac
done
[ -z "$undo" ] || {
	echo "nearmetal: changes to this host stay in force, and so do their journals in /var/lib/nearmetal." >&2
	echo "nearmetal: while it is installed (now, or again) these commands take them back: ${undo#; }" >&2
}
