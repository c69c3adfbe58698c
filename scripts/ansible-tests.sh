#!/bin/sh
# ansible-tests.sh: `make test-ansible`. Ansible runs the role packaging/ansible/nearmetal in a root of Debian 12 that
# scripts/debian.sh makes: packages, limits, the plugin's line in Slurm's configuration, huge pages. A second run changes nothing. A newer
# version is installed over it, and all is taken away. ansible-lint reads the role. As root on the host.
#
# Ansible comes from PyPI, into the root. The host's pool of huge pages stays as it is: a file has the place of the
# kernel's number. There is no systemd: that it reads the units anew is not tried.
set -eu
cd "$(dirname "$0")/.."
core=2.19.14 lint=26.10.1 FETCH_PIP=
if [ "${1:-}" != --within ]; then
	[ "$(id -u)" = 0 ] || {
		echo "ansible-tests.sh: run it as root" >&2
		exit 1
	}
	[ -n "$(ls build/packages/next/nearmetal_*.deb 2>/dev/null)" ] || {
		echo "ansible-tests.sh: there are no packages with newer ones: PACKAGES_NEXT=1 sh scripts/packages.sh" >&2
		exit 1
	}
	DEBIAN_PACKAGES=$PWD/build/packages exec sh scripts/debian.sh bookworm sh scripts/ansible-tests.sh --within
fi
. scripts/fetch.sh
version=$(cat VERSION)
pages=/proc/sys/vm/nr_hugepages
work=$(mktemp -d)
trap 'umount $pages 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
	echo "ansible-tests.sh: $*" >&2
	exit 1
}

# play EXPECTED ARGUMENT...: runs the role with these variables. EXPECTED is a pattern of Ansible's last line.
play() {
	expected=$1
	shift
	"$venv/bin/ansible-playbook" -i localhost, "$work/site.yml" "$@" >"$work/log" 2>&1 || :
	tail -n 2 "$work/log" | grep -Eq "$expected" || {
		cat "$work/log" >&2
		fail "Ansible does not say $expected"
	}
	echo "ansible $*: $(sed -n 's/^localhost *: *//p' "$work/log")"
}

# holds FILE LINE: the file has that line.
holds() { grep -Fxq -- "$2" "$1" || fail "$1 has no line \"$2\""; }

# files: what is in the folders that the role writes to.
files() { find /etc /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/log \) -prune -o -print | grep -v '/__pycache__\|/ld.so.cache\|-$' | sort; }

fetch_try "apt-get update" fetch_apt update
rm -f "$fetch_out"
# What a node of Slurm has, and what the packages need: neither is the role's to remove.
fetch_packages python3 python3-apt python3-venv procps slurm-client slurmd qemu-system-x86 libfabric1 libgomp1
venv=/opt/ansible
[ -x $venv/bin/ansible-lint ] || {
	rm -rf $venv
	python3 -m venv $venv
	fetch_pip $venv/bin/python install "ansible-core==$core" "ansible-lint==$lint"
}
dpkg -P $(dpkg-query -W -f '${Package}\n' 'nearmetal*' 2>/dev/null) >/dev/null 2>&1 || : # of a run that failed
rm -rf /etc/slurm/plugstack.conf /etc/sysctl.d/50-nearmetal.conf /etc/systemd/system/slurmd.service.d /var/cache/nearmetal

(cd packaging/ansible && HOME=$work "$venv/bin/ansible-lint" --offline -q nearmetal) || fail "ansible-lint found something"
echo "ansible-lint: nothing"

echo 7 >"$work/pages"
mount --bind "$work/pages" $pages
mkdir -p /etc/slurm /etc/systemd/system/slurmd.service.d
echo "optional other.so" >/etc/slurm/plugstack.conf
files >"$work/before"
export ANSIBLE_ROLES_PATH=$PWD/packaging/ansible ANSIBLE_NOCOLOR=1 ANSIBLE_HOME=$work/ansible
cat >"$work/site.yml" <<-EOF
	- hosts: localhost
	  connection: local
	  roles: [nearmetal]
	  vars:
	    ansible_python_interpreter: /usr/bin/python3
	    nearmetal_packages: /pk
	    nearmetal_slurm: "22.05"
	    nearmetal_plugin_args: accel=auto
	    nearmetal_huge_pages: 12
EOF

play 'changed=[1-9].*failed=0'
[ "$(nearmetal version | head -1 | cut -d' ' -f2)" = "$version" ] || fail "nearmetal version says $(nearmetal version)"
[ -s /usr/lib/x86_64-linux-gnu/slurm-wlm/spank_nearmetal.so ] || fail "there is no plugin"
holds /etc/slurm/plugstack.conf "required spank_nearmetal.so accel=auto"
holds /etc/systemd/system/slurmd.service.d/50-nearmetal.conf LimitMEMLOCK=infinity
holds /etc/security/limits.d/50-nearmetal.conf "* hard memlock unlimited"
holds /etc/sysctl.d/50-nearmetal.conf "vm.nr_hugepages = 12"
[ "$(cat $pages)" = 12 ] || fail "$pages is $(cat $pages)"
grep -q 'nearmetal check, rows that fail: .*kvm' "$work/log" || fail "nothing is said of rows that fail"

play 'changed=0 .*failed=0'

# Other arguments replace the line.
play 'changed=1 .*failed=0' -e nearmetal_plugin_args=accel=tcg
holds /etc/slurm/plugstack.conf "required spank_nearmetal.so accel=tcg"
[ "$(wc -l </etc/slurm/plugstack.conf)" = 2 ] || fail "plugstack.conf has other lines"
play 'changed=1 .*failed=0'

play 'changed=[1-9].*failed=0' -e nearmetal_packages=/pk/next -e "nearmetal_version=$version-2"
[ "$(dpkg-query -W -f '${Version}' nearmetal-slurm-22.05)" = "$version-2" ] || fail "the newer packages are not there"

# Neither a number, which would be 22.1, nor another state.
play 'failed=1' -e '{"nearmetal_slurm": 22.10}'
play 'failed=1' -e nearmetal_state=gone

# With a change in force, half made or complete, nothing is taken away.
for journal in 000001-test.open 000001-fix.done; do
	touch "/var/lib/nearmetal/$journal"
	play 'failed=1' -e nearmetal_state=absent
	grep -q "$journal.*" "$work/log" && grep -q 'nearmetal check --undo' "$work/log" || fail "nothing is said of changes to the host ($journal)"
	[ -e "/var/lib/nearmetal/$journal" ] && nearmetal version >/dev/null || fail "with $journal something was taken away"
	rm "/var/lib/nearmetal/$journal"
done
play 'changed=[1-9].*failed=0' -e nearmetal_state=absent
[ "$(cat $pages)" = 0 ] || fail "$pages is $(cat $pages)"
[ "$(cat /etc/slurm/plugstack.conf)" = "optional other.so" ] || fail "plugstack.conf is not what it was"
files >"$work/after"
diff "$work/before" "$work/after" >&2 || fail "that is left after nearmetal_state=absent"
play 'changed=0 .*failed=0' -e nearmetal_state=absent
