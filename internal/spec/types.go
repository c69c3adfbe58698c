// Package spec is the cluster file: its types, its defaults, and a reader that
// says where a mistake stands. It imports nothing of nearmetal's.
package spec

// Version is the only version of the cluster file there is so far.
const Version = 1

// Cluster is one cluster file (YAML). The zero value of a field means "the
// default", which Defaults fills in and docs/reference/cluster.md lists.
// The comments of the fields are the text of that page: one sentence or two, for users.
type Cluster struct {
	// Version of the file's format.
	Version int `yaml:"version" json:"version" default:"1" enum:"1"`
	// Name of the cluster: letters, digits and hyphens, at most 40. Unset: a name is made up.
	Name string `yaml:"name" json:"name" format:"cluster-name"`
	// Backend is what carries the plan out: a name that `nearmetal version` lists, with a colon and an address behind it where the backend takes one. `qemu` runs the VMs as QEMU processes of this host.
	Backend string `yaml:"backend" json:"backend" default:"qemu" format:"backend"`
	// Accel is how the guest's instructions run. `auto` takes KVM where it works and TCG (emulation, slow) elsewhere.
	Accel string `yaml:"accel" json:"accel" default:"auto" enum:"auto,kvm,tcg"`
	// Root is the guests' file system: `host` for this host's own, read-only under an overlay in memory, a directory, an image, which is unpacked once into your cache (squashfs, qcow2, SIF, a folder or archive with an OCI image: see docs/files.md), or `backend` for a disk that the backend itself has. A directory of that name is `./backend`.
	Root string `yaml:"root" json:"root" default:"host" format:"path"`
	// Files is how the VMs see the host's files, their root and shares: by `9p`, which QEMU serves itself, or by `virtiofs`, which a virtiofsd process for each of them serves. `auto` takes 9p where QEMU and the guests' kernel have it, else virtiofs; Red Hat's QEMU and kernels have virtiofs only (see docs/files.md).
	Files string `yaml:"files" json:"files" default:"auto" enum:"auto,virtiofs,9p"`
	// Kernel started in the guests. Unset: the newest readable one in /boot, or beside its modules (/lib/modules/VERSION/vmlinuz), that has its modules, the running one first.
	Kernel string `yaml:"kernel" json:"kernel" format:"path"`
	// KernelModules is the directory of the kernel's modules, which depmod has filled. Unset: lib/modules/VERSION below ROOT, if the kernel is ROOT/boot/FILE, else /lib/modules/VERSION of this host. A kernel without modules has to have all that VMs need built in. Requires `kernel`.
	KernelModules string `yaml:"kernelModules" json:"kernelModules" format:"path"`
	// KernelArgs are added to the guest's kernel command line.
	KernelArgs []string `yaml:"kernelArgs" json:"kernelArgs" format:"kernel-arg"`
	// QEMU is the program that runs the VMs. Unset: the first of qemu-system-x86_64 and /usr/libexec/qemu-kvm that is there.
	QEMU string `yaml:"qemu" json:"qemu" format:"path"`
	// VMs are groups of equal VMs.
	VMs []Group `yaml:"vms" json:"vms"`
	// Shares are directories of the host that the guests see at the same path.
	Shares []Share `yaml:"shares" json:"shares"`
	// Home is whether your home directory is shared besides: `share` shares it at the same path.
	Home string `yaml:"home" json:"home" default:"none" enum:"none,share"`
	// Network joins the VMs. A word is its type: `network: rxe`.
	Network Network `yaml:"network" json:"network" short:"type"`
	// Region is the memory that the VMs of one host share.
	Region Region `yaml:"region" json:"region"`
	// Launcher is where an MPI launcher itself runs: on the host, or in the first VM. `auto`: on the host with `root: host`, else in the first VM.
	Launcher string `yaml:"launcher" json:"launcher" default:"auto" enum:"auto,host,vm"`
	// Fabric is how MPI libraries send between ranks where there is a region: `auto` loads nearmetal's libfabric provider, and preloads its transport for UCX for libraries that have UCX only (see docs/ucx.md); `ucx` is the same, but libraries that have both take UCX; `libfabric` loads the provider only; `none` leaves the libraries as they are.
	Fabric string `yaml:"fabric" json:"fabric" default:"auto" enum:"auto,libfabric,ucx,none"`
	// Isolation is how closely VMs are fenced in on their host: `standard` covers the host's /proc, /sys, /dev and /run, other users' files in /tmp, and the host's loopback, and has QEMU's system calls filtered; `strict` puts each VM's QEMU into namespaces of its own as well, with a file system of what is exported and what QEMU needs; `auto` is `standard` as far as this host can, and says what is missing (see docs/security.md).
	Isolation string `yaml:"isolation" json:"isolation" default:"auto" enum:"auto,standard,strict"`
	// RootWrites lets VMs that root starts write to shares: their root is then root in what is shared.
	RootWrites bool `yaml:"rootWrites" json:"rootWrites" default:"false"`
	// Env holds variables for every command in the guests.
	Env map[string]string `yaml:"env" json:"env" format:"variable"`
	// Placement is how VMs are put onto the host's CPUs, memory and devices.
	Placement Placement `yaml:"placement" json:"placement"`
	// VSphere is where a vCenter puts the VMs, with `backend: vsphere` (see docs/vsphere.md).
	VSphere VSphere `yaml:"vsphere" json:"vsphere"`
}

// RootBackend is the Root of VMs that start from a disk of their backend's.
const RootBackend = "backend"

// Group is a number of equal VMs.
type Group struct {
	// Name of the VMs: `vm` with count 2 makes vm0 and vm1.
	Name string `yaml:"name" json:"name" default:"vm" format:"host-name"`
	// Names of the VMs, a host name each, instead of `name` with a number. `count` is their number, and may be left out.
	Names []string `yaml:"names" json:"names" format:"vm-name"`
	// Count of VMs in the group.
	Count int `yaml:"count" json:"count" default:"1" min:"1" max:"1024"`
	// VCPUs of each VM. 0: the host's cores shared out among the VMs, at least 1.
	VCPUs int `yaml:"vcpus" json:"vcpus" default:"0" min:"0" max:"4096"`
	// Memory of each VM.
	Memory Size `yaml:"memory" json:"memory" default:"2GiB" min:"128MiB" max:"64TiB"`
	// Devices passed through to each VM.
	Devices []Device `yaml:"devices" json:"devices"`
}

// Share is a directory of the host in the guests.
type Share struct {
	// Path of the directory on the host; `.` is the working directory of the command that starts the cluster.
	Path string `yaml:"path" json:"path" format:"path" required:"true"`
	// Target is the path in the guests. Unset: the same.
	Target string `yaml:"target" json:"target" format:"target"`
	// Mode is read-write or read-only.
	Mode string `yaml:"mode" json:"mode" default:"rw" enum:"rw,ro"`
}

// Network joins the VMs of a cluster.
type Network struct {
	// Type: `auto` is a direct link for two VMs and a frame switch for more, neither needs privileges; `rxe` is the same with soft RoCE, an RDMA device in each VM: on it, or on the passed-through network cards that have no RDMA of their own; `bridge` is tap devices on a bridge (root); `none` is not a network.
	Type string `yaml:"type" json:"type" default:"auto" enum:"auto,rxe,bridge,none"`
	// Bridge that taps are put on, with `type: bridge`. Unset: one is made and removed.
	Bridge string `yaml:"bridge" json:"bridge" format:"interface"`
	// Subnet of the VMs (CIDR, /8 to /28): vm0 has its address number 1.
	Subnet string `yaml:"subnet" json:"subnet" default:"10.77.0.0/16" format:"cidr"`
	// DeviceSubnet is that of the VMs' devices with a network interface (CIDR): the first device of the first VM has its address number 1.
	DeviceSubnet string `yaml:"deviceSubnet" json:"deviceSubnet" default:"10.78.0.0/16" format:"cidr"`
	// DeviceMTU is that of the devices' network interfaces in bytes, set in the guests and read back; 0: as their drivers have it.
	DeviceMTU int `yaml:"deviceMTU" json:"deviceMTU" default:"0" min:"0" max:"65520"`
	// AllowTCP starts VMs whose RDMA devices cannot be used, so that MPI uses TCP. Otherwise that is an error.
	AllowTCP bool `yaml:"allowTCP" json:"allowTCP" default:"false"`
	// MTU of the network in bytes.
	MTU int `yaml:"mtu" json:"mtu" default:"65521" min:"1280" max:"65521"`
	// Uplink lets the guests open connections to other machines, as the user, and to an MPI launcher on this host (QEMU's user network, or passt where QEMU is built without it).
	Uplink string `yaml:"uplink" json:"uplink" default:"auto" enum:"auto,user,none"`
	// HostPorts are TCP ports of this host that the guests may reach at 10.0.2.2, besides those of an MPI launcher that you start.
	HostPorts []int `yaml:"hostPorts" json:"hostPorts" format:"port"`
}

// Region is the memory that the VMs of one host share.
type Region struct {
	// Size: a power of two of at least 1MiB; 0 for none. Unset: with more than one VM on a host 16MiB for each vCPU, at least 64MiB and at most 4GiB, else none.
	Size *Size `yaml:"size" json:"size" max:"1TiB" format:"power-of-two"`
	// Backing of the region: /dev/shm, or the huge pages of a hugetlbfs mount.
	Backing string `yaml:"backing" json:"backing" default:"shm" enum:"shm,hugetlb"`
	// Device that shows the region in the guest.
	Device string `yaml:"device" json:"device" default:"auto" enum:"auto,ivshmem,devdax"`
}

// Device is a device of the host passed through.
type Device struct {
	// Type: `vf` is a virtual function of a card, `pci` one PCI function by its address.
	Type string `yaml:"type" json:"type" default:"vf" enum:"vf,pci"`
	// PF is the physical function (RDMA, network or PCI name) whose VFs are taken.
	PF string `yaml:"pf" json:"pf" format:"device-name"`
	// Class of card to take VFs from where no PF is named.
	Class string `yaml:"class" json:"class" enum:",infiniband,ethernet"`
	// Address of a PCI function, 0000:41:00.0.
	Address string `yaml:"address" json:"address" format:"pci-address"`
	// Dynamic takes any function of the host with the vendor and device ids of the one at `address`: vCenter chooses it when the VM starts
	// (Dynamic DirectPath I/O). With `type: pci`, on vSphere.
	Dynamic bool `yaml:"dynamic" json:"dynamic" default:"false"`
	// Count of devices of this kind for each VM.
	Count int `yaml:"count" json:"count" default:"1" min:"1" max:"64"`
}
