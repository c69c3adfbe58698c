#!/bin/sh
# deb: remove, purge or upgrade; rpm: 0 or 1. A purge takes the journals along. Red Hat's family has no purge: an empty
# folder goes, journals of changes stay.
set -e
case ${1:-} in
purge) rm -rf /var/lib/nearmetal ;;
0)
	if ! ls /var/lib/nearmetal/*.open >/dev/null 2>&1; then
		rm -rf /var/lib/nearmetal
	fi
	;;
esac
