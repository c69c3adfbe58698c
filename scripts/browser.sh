#!/bin/sh
# Installs the browser that the report is looked at in: Chromium without a screen, on
# Debian 12 or 13. Run again it finds it there and does nothing.
set -eu
export DEBIAN_FRONTEND=noninteractive
for b in chromium-headless-shell chromium google-chrome; do
	command -v "$b" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" != 0 ]; then
	echo "no Chromium; run as root: sh scripts/browser.sh" >&2
	exit 1
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core >/dev/null
