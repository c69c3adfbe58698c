#!/bin/bash
# day.sh [-k] [PART...]: inside of scripts/openstack.sh's root: an administrator's and a tenant's day, on a real Nova. Parts are
# part-*.sh; all but slurm if none is named. It says how long each step took; what is wrong ends it with status 1.
# -k: image, flavor and hook stay, for the next day in the same cloud.
set -u
keep=
[ "${1:-}" != -k ] || {
	keep=-k
	shift
}
[ -e /run/nm-day ] || rm -rf /root/.nm /root/day # of another cloud
mkdir -p /root/day && cd /root/day
. /nm/lib.sh

plan() {
	cat >plan.yaml <<-X
		name: demo
		root: backend
		vms: [{name: vm, count: 2, vcpus: 2, memory: 768MiB}]
	X
	nearmetal topology gather host.tar.gz && nearmetal plan -f plan.yaml --on openstack --host host.tar.gz --format openstack >ask.sh &&
		DISK=2 sh ask.sh admin
}
hook() {
	nearmetal host openstack-region install --flavor nm.2.768M=64MiB --flavor nm.2.896M=64MiB && libvirtd_again && nearmetal host openstack-region status
}
if [ ! -e /run/nm-day ]; then
	step "the image is in Glance" bash /nm/image.sh
	step "the flavor of a plan" plan
	step "Nova takes the flavors of the plans that are tested, and no wrong ones" python3 /nm/flavors.py /nm/golden/*.tf.json
	touch /run/nm-day
fi
nearmetal host openstack-region status >/dev/null 2>&1 || step "the region's hook, and libvirtd again" hook
[ $# != 0 ] || set -- cluster servers groups tenant migrate bare
for part; do
	echo "-- $part"
	. "/nm/part-$part.sh"
done
[ -z "$keep" ] || exit 0
remove() { nearmetal host openstack-region remove && ! ls /etc/libvirt/hooks/qemu.d/* 2>/dev/null; }
step "the hook is removed" remove
echo "all as it should be"
