#!/bin/bash
# second.sh: a second compute host, in a mount namespace and with a host name of its own: libvirtd, nova-compute and the region's hook.
set -eu
hostname aio2
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
rm -rf /var/lib/nova/aio2
mkdir -p /var/lib/nova/aio2 /var/lib/nearmetal /etc/nearmetal /var/lib/libvirt
cp -a /etc/libvirt /var/lib/nova/aio2/etc
mount --bind /var/lib/nova/aio2/etc /etc/libvirt
rm -rf /etc/libvirt/hooks/qemu.d /etc/libvirt/qemu/instance-*
mkdir -p /var/lib/nova/aio2/mysqld
mount --bind /run/mysqld /var/lib/nova/aio2/mysqld
for d in /run /var/lib/nearmetal /etc/nearmetal /var/lib/libvirt /var/cache/libvirt; do
	mount -t tmpfs -o mode=755 tmpfs $d
done
mkdir -p /run/nova-lock /run/libvirt /run/mysqld
mount --bind /var/lib/nova/aio2/mysqld /run/mysqld # nova-compute asks for the versions of others once
cat >/var/lib/nova/aio2/nova.conf <<Y
[DEFAULT]
host = aio2
state_path = /var/lib/nova/aio2
instances_path = /var/lib/nova/instances
Y
daemon() {
	libvirtd >>/log/second-libvirtd.log 2>&1 &
	for i in $(seq 600); do
		! virsh -q list >/dev/null 2>&1 || return 0
		sleep 0.2
	done
	return 1
}
virtlogd -d
daemon
nearmetal host openstack-region install --flavor nm.2.768M=64MiB
kill -9 $! # libvirtd looks for hooks when it starts
wait $! || true
daemon
nova-compute --config-file /etc/nova/nova.conf --config-file /var/lib/nova/aio2/nova.conf >>/log/second-nova-compute.log 2>&1 &
wait -n
