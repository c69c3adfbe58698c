#!/bin/sh
# libvirtd.sh DIR: makes the namespace in which the host's libvirtd of a test runs, as root, and stays. Whoever wants
# a daemon in it starts one with nsenter. Nothing of this host's own libvirt is seen or written: its directories are
# empty here, and end with the namespace. DIR gets the daemon's socket.
set -e
dir=$1
# libvirtd does not start without the user that a distribution's package makes. All of /etc is a copy: a file mounted over
# /etc/passwd alone goes when another test adds a user on this host, which puts a new file in that one's place.
cp -a /etc "$dir/etc"
grep -q '^libvirt-qemu:' "$dir/etc/passwd" || echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >>"$dir/etc/passwd"
grep -q '^libvirt-qemu:' "$dir/etc/group" || printf 'libvirt-qemu:x:64055:\nkvm:x:64056:\n' >>"$dir/etc/group"
mount --bind "$dir/etc" /etc
for d in /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do
	mkdir -p "$d"
	mount -t tmpfs tmpfs "$d"
done
printf 'stdio_handler = "file"\n' >/etc/libvirt/qemu.conf # else virtlogd is wanted
cat >"$dir/libvirtd.conf" <<END
unix_sock_dir = "$dir"
auth_unix_rw = "none"
auth_unix_ro = "none"
END
# Where /dev/kvm opens but runs no guest, libvirtd would ask QEMU what it can do at each call.
mkdir "$dir/dev"
mount -t tmpfs tmpfs "$dir/dev"
for n in null zero full random urandom tty net shm pts ptmx mqueue hugepages; do
	[ -e "/dev/$n" ] || continue
	if [ -d "/dev/$n" ]; then mkdir "$dir/dev/$n"; else : >"$dir/dev/$n"; fi
	mount --rbind "/dev/$n" "$dir/dev/$n"
done
# libvirtd makes the command line of a VM with devices only where it sees VFIO and an IOMMU: these two names are all
# that it looks at for that. No VM with a device starts here.
mkdir "$dir/dev/vfio"
: >"$dir/dev/vfio/vfio"
mount --rbind "$dir/dev" /dev
if [ -d /sys/kernel/iommu_groups ] && [ -z "$(ls /sys/kernel/iommu_groups)" ]; then
	mount -t tmpfs tmpfs /sys/kernel/iommu_groups
	mkdir /sys/kernel/iommu_groups/0
fi
echo ready
exec cat
