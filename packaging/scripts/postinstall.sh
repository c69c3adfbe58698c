#!/bin/sh
# deb: configure; rpm: 1 or 2.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers nearmetal.conf || :
fi
# What nearmetal would make at its first change to this host, with this mode.
[ -d /var/lib/nearmetal ] || mkdir -m 0700 /var/lib/nearmetal
