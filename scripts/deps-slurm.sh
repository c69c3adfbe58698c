#!/bin/sh
# Installs what the Slurm part is built and tested with (make test-slurm): Debian's or
# Ubuntu's own Slurm, whose daemons are not started, and munge. As root it runs apt-get; as
# anybody else it says what to ask root for. Run again it does nothing. PACKAGES are more of them.
set -eu
export DEBIAN_FRONTEND=noninteractive

packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm-dev munge ${PACKAGES:-}"

need=
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || need="$need $p"
done
[ -n "$need" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "missing:$need" >&2
	echo "run as root: sh scripts/deps-slurm.sh" >&2
	exit 1
fi
echo "installing:$need"
apt-get update -qq
# The packages would start daemons of their own: a policy that forbids it, for the while.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $need >/dev/null
