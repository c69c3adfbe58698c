#!/bin/sh
# qemu-redhat-build.sh [FOLDER]: builds QEMU with the devices of Red Hat's (build/redhat-built), for `make test-rhel`, and prints
# FOLDER/bin, with qemu-kvm and qemu-system-x86_64 there. FOLDER/bin-passt has one without the user network (slirp), as a site may
# have it. Built once: a later call finds it. Root, or a user, on Debian 12: 40 MB to fetch, some minutes.
#
# The source is QEMU 7.2, that of Red Hat 9.2, as Debian 12 has it. The devices are those that Red Hat's source package
# of that version names for x86-64. What Red Hat changes in the source beside that is not here (docs/install.md).
#
# scripts/qemu-redhat.sh makes a cheaper stand-in, which CI has.
set -eu
cd "$(dirname "$0")/.."
. scripts/fetch.sh
dest=${1:-build/redhat-built}

# devices: what is built in, by Kconfig's names. All else that QEMU can be is left out.
devices() {
	# The machines q35 and pc.
	echo PC Q35 I440FX PCI PCI_EXPRESS PCI_EXPRESS_Q35 PCI_I440FX PCIE_PORT PCI_DEVICES PC_ACPI PC_PCI PAM LPC_ICH9 SMBIOS \
		ACPI ACPI_PCI ACPI_CPU_HOTPLUG ACPI_MEMORY_HOTPLUG ACPI_NVDIMM ACPI_SMBUS ACPI_VMGENID ACPI_X86 ACPI_X86_ICH APIC APM \
		I2C I8254 I8257 I8259 IOAPIC ISA_BUS MC146818RTC FW_CFG_DMA PCKBD PCSPK PFLASH_CFI01 SERIAL SERIAL_ISA SERIAL_PCI \
		SMBUS_EEPROM PVPANIC_ISA VMMOUSE VMPORT HYPERV SEV SGX VTD
	# Memory that is plugged, bridges, and devices of the host.
	echo DIMM MEM_DEVICE NVDIMM CXL CXL_MEM_DEVICE PXB I82801B11 IOH3420 XIO3130 VFIO VFIO_PCI
	# virtio, and what other processes serve.
	echo VIRTIO VIRTIO_PCI VIRTIO_BALLOON VIRTIO_BLK VIRTIO_GPU VIRTIO_INPUT VIRTIO_INPUT_HOST VIRTIO_NET VIRTIO_RNG VIRTIO_SCSI \
		VIRTIO_SERIAL VIRTIO_VGA VIRTIO_MEM VIRTIO_IOMMU VHOST_USER VHOST_USER_BLK VHOST_USER_FS VHOST_USER_VSOCK VHOST_VSOCK
	# Disks, cards, screens, USB, and the rest.
	echo AHCI IDE_CORE IDE_PCI IDE_PIIX IDE_QDEV SCSI FDC FDC_ISA FDC_SYSBUS E1000_PCI E1000E_PCI_EXPRESS RTL8139_PCI HDA \
		BOCHS_DISPLAY VGA VGA_PCI VGA_CIRRUS USB USB_EHCI USB_EHCI_PCI USB_UHCI USB_XHCI USB_XHCI_NEC USB_XHCI_PCI USB_SMARTCARD \
		USB_STORAGE_CORE USB_STORAGE_CLASSIC TPM TPM_CRB TPM_TIS_ISA TPM_EMULATOR WDT_IB6300ESB WDT_IB700 \
		EDU ISA_DEBUG ISA_TESTDEV PCI_TESTDEV HYPERV_TESTDEV TEST_DEVICES
}

# The same script has made it.
made=$(sha256sum scripts/qemu-redhat-build.sh | cut -d' ' -f1)
if [ "$(cat "$dest/made" 2>/dev/null)" = "$made" ] && "$dest/bin/qemu-kvm" --version >/dev/null 2>&1; then
	(cd "$dest/bin" && pwd)
	exit 0
fi

. /etc/os-release
[ "$ID-${VERSION_ID:-}" = debian-12 ] || {
	echo "qemu-redhat-build.sh: it builds on Debian 12 only" >&2
	exit 1
}
needed="gcc libc6-dev meson ninja-build pkg-config python3 libglib2.0-dev libpixman-1-dev zlib1g-dev libfdt-dev libslirp-dev libseccomp-dev
	libcap-ng-dev libnuma-dev xz-utils"
missing=
for p in $needed; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q ' installed$' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	[ "$(id -u)" = 0 ] || {
		echo "qemu-redhat-build.sh: sudo apt install$missing" >&2
		exit 1
	}
	# shellcheck disable=SC2086
	fetch_packages $missing >&2
fi

# say TEXT: a step, with the seconds since the start.
began=$(date +%s)
say() { echo "qemu-redhat-build: $(($(date +%s) - began)) s: $*" >&2; }

rm -f "$dest/made"
mkdir -p "$dest/fetched"
dest=$(cd "$dest" && pwd)
tarball=$(ls "$dest"/fetched/qemu_*.orig.tar.xz 2>/dev/null || true)
if [ -z "$tarball" ]; then
	say "fetching QEMU's source (40 MB)"
	fetch_source bookworm qemu "$dest/fetched.new" || exit 1
	rm -rf "$dest/fetched"
	mv "$dest/fetched.new" "$dest/fetched"
	tarball=$(ls "$dest"/fetched/qemu_*.orig.tar.xz)
fi
say "unpacking"
rm -rf "$dest/source"
mkdir -p "$dest/source"
tar -xJf "$tarball" -C "$dest/source" --strip-components=1
cd "$dest/source"
devices | tr ' ' '\n' | sed 's/.*/CONFIG_&=y/' >configs/devices/x86_64-softmmu/x86_64-rh-devices.mak
# Debian's tarball has no such firmware to unpack.
sed -i 's/^if unpack_edk2_blobs/if false and unpack_edk2_blobs/' pc-bios/meson.build
mkdir build
cd build
say "configuring"
# It takes the distribution's meson with the distribution's Python alone.
PATH=/usr/bin:$PATH
../configure --prefix=/usr --firmwarepath=/usr/share/qemu:/usr/share/seabios --with-pkgversion='devices of Red Hat 9.2' \
	--meson=/usr/bin/meson --ninja=/usr/bin/ninja \
	--target-list=x86_64-softmmu --without-default-devices --with-devices-x86_64=x86_64-rh-devices --without-default-features \
	--enable-system --enable-kvm --enable-tcg --enable-fdt=system --enable-slirp --enable-seccomp --enable-cap-ng --enable-numa \
	--enable-vhost-user --enable-vhost-net --enable-vhost-kernel --enable-tpm --enable-membarrier \
	--disable-virtfs --disable-docs --disable-tools --disable-guest-agent --disable-werror --disable-install-blobs \
	>"$dest/configure.log" 2>&1 || {
	tail -n 30 "$dest/configure.log" >&2
	exit 1
}
say "compiling: $(ninja -n qemu-system-x86_64 | tail -n 1 | sed 's/^\[[0-9]*\/\([0-9]*\)\].*/\1 steps/')"
# Its progress is a line each two hundred steps. In a pipe its own status would be lost.
{
	ninja qemu-system-x86_64 2>&1 || echo "ninja failed"
} | while IFS= read -r line; do
	echo "$line"
	case $line in '['[2468]00/* | '['1[02468]00/*) say "${line%%]*}]" ;; esac
done >"$dest/compile.log"
! grep -q '^ninja failed$' "$dest/compile.log" || {
	grep -A 20 FAILED "$dest/compile.log" | head -n 40 >&2
	tail -n 5 "$dest/compile.log" >&2
	exit 1
}
# install_into FOLDER: what was built.
install_into() {
	mkdir -p "$dest/$1"
	cp qemu-system-x86_64 "$dest/$1/qemu-system-x86_64"
	ln -sf qemu-system-x86_64 "$dest/$1/qemu-kvm"
}
install_into bin
say "once more without the user network"
sed -i 's/^#ifdef CONFIG_SLIRP/#if 0/' ../net/net.c
ninja qemu-system-x86_64 >>"$dest/compile.log" 2>&1 || {
	tail -n 20 "$dest/compile.log" >&2
	exit 1
}
install_into bin-passt
# The firmware of this host that Red Hat has as well: no qboot.
rm -rf "$dest/share"
mkdir -p "$dest/share/qemu" "$dest/share/seabios"
for rom in linuxboot.bin linuxboot_dma.bin multiboot.bin multiboot_dma.bin pvh.bin kvmvapic.bin; do
	cp -L "/usr/share/qemu/$rom" "$dest/share/qemu/"
done
cp -L /usr/share/seabios/bios.bin /usr/share/seabios/bios-256k.bin /usr/share/seabios/vgabios-stdvga.bin "$dest/share/seabios/"
cd "$dest"
rm -rf source
# It must be what it is made for.
has() { ./bin/qemu-kvm -device help | grep -q "name \"$1\""; }
for device in virtio-9p-pci ivshmem-plain ivshmem-doorbell virtio-pmem-pci; do
	! has "$device" || {
		echo "qemu-redhat-build.sh: it has $device" >&2
		exit 1
	}
done
for device in vhost-user-fs-pci nvdimm pxb-pcie vfio-pci intel-iommu virtserialport; do
	has "$device" || {
		echo "qemu-redhat-build.sh: it has no $device" >&2
		exit 1
	}
done
echo "$made" >made
say "done: $(./bin/qemu-kvm --version | head -n 1)"
echo "$dest/bin"
