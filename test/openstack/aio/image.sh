#!/bin/bash
# image.sh: makes the guest's disk of /guest, with nearmetal in it, and uploads it and its kernel to Glance. The image is "debian".
set -eu
g=/guest
install -m755 /build/nearmetal $g/usr/local/bin/
ln -sf /usr/local/bin/nearmetal $g/usr/bin/nearmetal # systemd-run has no /usr/local
install -D -m644 /build/c/fabric/libivshmem-fi.so $g/usr/local/lib/nearmetal/libfabric/libivshmem-fi.so
install -D -m644 /build/c/ucx/libnearmetal-ucx.so $g/usr/local/lib/nearmetal/ucx/libnearmetal-ucx.so
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
echo 'blacklist kvm
blacklist kvm_amd
blacklist kvm_intel
blacklist aesni_intel
blacklist ghash_clmulni_intel
blacklist iTCO_wdt
blacklist lpc_ich
blacklist i2c_i801
blacklist pcspkr
blacklist sg
blacklist cfg80211
install cfg80211 /bin/true
install loop /bin/true
install dm_mod /bin/true
install fuse /bin/true
install efi_pstore /bin/true' >$g/etc/modprobe.d/nearmetal-test.conf
chroot $g systemctl -q mask sys-kernel-config.mount sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	proc-sys-fs-binfmt_misc.automount systemd-binfmt.service systemd-pstore.service systemd-machine-id-commit.service
mkdir -p $g/etc/systemd/journald.conf.d
printf '[Journal]\nStorage=volatile\n' >$g/etc/systemd/journald.conf.d/nearmetal-test.conf
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
