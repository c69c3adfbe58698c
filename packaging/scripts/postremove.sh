#!/bin/sh
# deb: remove, purge or upgrade; rpm: 0 or 1. Red Hat's family has no purge. The journal of a change that is in force is
# the only way back: it stays, and the folder with it.
set -e
case ${1:-} in
purge | 0)
	for f in /var/lib/nearmetal/[0-9]*.open /var/lib/nearmetal/[0-9]*.done; do
		[ ! -e "$f" ] || exit 0
	done
	rm -rf /var/lib/nearmetal
	;;
esac
