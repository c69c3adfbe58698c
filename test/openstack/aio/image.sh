#!/bin/bash
# image.sh: makes the guest's disk of /guest, with nearmetal in it, and uploads it and its kernel to Glance. The image is "debian".
set -eu
g=/guest
install -m755 /build/nearmetal $g/usr/local/bin/
ln -sf /usr/local/bin/nearmetal $g/usr/bin/nearmetal # systemd-run has no /usr/local
install -D -m644 /build/c/fabric/libivshmem-fi.so $g/usr/local/lib/nearmetal/libfabric/libivshmem-fi.so
install -m755 /build/c/kernels/nm_* $g/usr/local/bin/ 2>/dev/null || true
rm -rf $g/usr/local/bin/*.p
echo node >$g/etc/hostname
echo "127.0.0.1 localhost" >$g/etc/hosts
echo "/dev/vda / ext4 defaults 0 1" >$g/etc/fstab
: >$g/etc/machine-id
rm -rf $g/var/lib/cloud $g/var/log/cloud-init*
# What a cloud's image has: a configuration drive to read, its network by systemd, no timers.
# Of cloud-init's modules those that matter here: each costs emulated seconds.
cat >$g/etc/cloud/cloud.cfg.d/90_nearmetal.cfg <<X
datasource_list: [ ConfigDrive, None ]
cloud_init_modules: [ write-files, set_hostname ]
cloud_config_modules: [ runcmd ]
cloud_final_modules: [ scripts-user ]
X
chroot $g systemctl -q enable systemd-networkd
for unit in slurmd slurmctld munge e2scrub_reap apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer \
	e2scrub_all.timer systemd-timesyncd systemd-networkd-wait-online; do
	chroot $g systemctl -q disable $unit 2>/dev/null || true
done
chroot $g getent group hpc >/dev/null || chroot $g groupadd hpc
chroot $g getent passwd ann >/dev/null || chroot $g useradd -m -u 1000 -G hpc ann
# The link of docs/openstack.md, for Debian's Slurm.
ln -sfn libpmix.so.2 $g/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so
# This cloud has no server of names. One that does not answer holds munged and slurmstepd up.
: >$g/etc/resolv.conf
# What nobody looks at costs emulated seconds, too.
chroot $g systemctl -q mask getty.target getty-static.service systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-tmpfiles-clean.timer
# The rule of docs/openstack.md.
sed -n '/^# .etc.udev.rules.d.60-nearmetal-region.rules/,/^```/p' /nm/openstack.md | sed '/^```/d' >$g/etc/udev/rules.d/60-nearmetal-region.rules
[ -s $g/etc/udev/rules.d/60-nearmetal-region.rules ]

kernel=$(ls $g/boot/vmlinuz-* | tail -1)
rm -f /var/lib/nm-disk.raw /var/lib/nm-disk.qcow2
truncate -s 1900M /var/lib/nm-disk.raw
mkfs.ext4 -q -O ^has_journal -d $g /var/lib/nm-disk.raw
qemu-img convert -O qcow2 /var/lib/nm-disk.raw /var/lib/nm-disk.qcow2
rm /var/lib/nm-disk.raw
python3 /nm/image.py "$kernel" "${kernel/vmlinuz/initrd.img}" /var/lib/nm-disk.qcow2
