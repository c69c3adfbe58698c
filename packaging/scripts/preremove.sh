#!/bin/sh
# deb: remove or upgrade; rpm: 0 (removed) or 1 (upgraded).
set -e
case ${1:-} in
remove | 0)
	for f in /var/lib/nearmetal/*.open; do
		if [ -e "$f" ]; then
			echo "nearmetal: changes to this host stay in place; nearmetal check --undo takes them back, as long as it is installed" >&2
			break
		fi
	done
	;;
esac
