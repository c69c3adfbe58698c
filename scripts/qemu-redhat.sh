#!/bin/sh
# qemu-redhat.sh [FOLDER]: makes FOLDER/bin/qemu-system-x86_64 (build/redhat), a copy of this host's QEMU without the devices that
# Red Hat's is built without, and prints FOLDER/bin. Their names are changed, to others of the same length: virtio-9p,
# ivshmem, virtio-pmem. FOLDER/bin/qemu-kvm is the same. It is a copy: what else Red Hat's lacks is still there.
set -eu
dest=${1:-build/redhat}
own=$(command -v qemu-system-x86_64) || {
	echo "qemu-redhat.sh: there is no qemu-system-x86_64: sudo apt install qemu-system-x86" >&2
	exit 1
}
own=$(readlink -f "$own")
mkdir -p "$dest/bin"
dest=$(cd "$dest" && pwd)
# It looks for its firmware and modules beside itself.
for sub in share lib; do
	ln -sfn "$(dirname "$(dirname "$own")")/$sub" "$dest/$sub"
done
python3 - "$own" "$dest/bin/.new" <<'END'
import sys

text = open(sys.argv[1], "rb").read()
for device in b"virtio-9p-pci", b"ivshmem-plain", b"ivshmem-doorbell", b"virtio-pmem-pci":
    # Debian 12's has no virtio-pmem.
    if device not in text and device != b"virtio-pmem-pci":
        sys.exit("qemu-redhat.sh: %s is not in %s" % (device.decode(), sys.argv[1]))
    text = text.replace(device, device[:-1] + b"-")
open(sys.argv[2], "wb").write(text)
END
chmod 755 "$dest/bin/.new"
mv "$dest/bin/.new" "$dest/bin/qemu-system-x86_64"
ln -sf qemu-system-x86_64 "$dest/bin/qemu-kvm"
echo "$dest/bin"
