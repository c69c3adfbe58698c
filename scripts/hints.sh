#!/bin/sh
# hints.sh: what a user of a fresh build does next, and what his machine lacks. It ends with 0 whatever it finds.
#
# environment: HINTS_ROOT  a tree that stands for / (tests)
root=${HINTS_ROOT:-}
user=$(id -un 2>/dev/null)

echo "build/nearmetal is built. Try:"
echo "  export PATH=\"$(pwd)/build:\$PATH\"    # or, as root: make install"
echo "  nearmetal check --problems"
echo "  nearmetal run --vms 2 -- hostname"

command -v qemu-system-x86_64 >/dev/null || [ -x "$root/usr/libexec/qemu-kvm" ] ||
	echo "There is no QEMU: sudo apt install qemu-system-x86"
if [ ! -e "$root/dev/kvm" ]; then
	echo "There is no /dev/kvm: VMs are emulated, and slow. nearmetal check says why."
elif [ ! -r "$root/dev/kvm" ] || [ ! -w "$root/dev/kvm" ]; then
	echo "You may not open /dev/kvm: sudo usermod -aG kvm $user, and log in again."
fi
for kernel in "$root"/boot/vmlinuz-*; do
	[ -r "$kernel" ] && exit 0
	[ -e "$kernel" ] && closed=yes
done
if [ "${closed:-}" ]; then
	echo "You may not read the kernels in /boot: nearmetal kernel fetch, or sudo chmod 0644 /boot/vmlinuz-*"
else
	echo "There is no kernel in /boot: sudo apt install linux-image-amd64, or name one by --kernel"
fi
exit 0
