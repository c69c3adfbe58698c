#!/bin/sh
# Installs the programs of Debian's that `make bench` runs besides our own. Without root it
# changes nothing: what is missing is then left out of the run.
set -eu
need=
for p in hpcc lammps; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || need="$need $p"
done
if [ -n "$need" ] && [ "$(id -u)" = 0 ]; then
	echo "installing:$need"
	apt-get update -qq
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null
fi
