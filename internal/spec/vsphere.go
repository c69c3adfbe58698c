package spec

// VSphere is where a vCenter puts VMs. Names are those of vCenter's inventory, or paths in it.
type VSphere struct {
	// Template is the VM or template that the VMs are clones of.
	Template string `yaml:"template" json:"template" format:"inventory"`
	// Linked makes clones that share the disks of the template's current snapshot, instead of copies of its disks.
	Linked bool `yaml:"linked" json:"linked" default:"false"`
	// Datacenter, where there are several. Unset: `GOVC_DATACENTER`, or the only one.
	Datacenter string `yaml:"datacenter" json:"datacenter" format:"inventory"`
	// Hosts that the VMs may run on; a cluster stands for all of its hosts. Unset: all of the datacenter that take VMs.
	Hosts []string `yaml:"hosts" json:"hosts" format:"inventory"`
	// Datastore of the VMs' disks. Unset: the template's.
	Datastore string `yaml:"datastore" json:"datastore" format:"inventory"`
	// Pool is the resource pool. Unset: that of each host's cluster.
	Pool string `yaml:"pool" json:"pool" format:"inventory"`
	// Folder of the VMs. Unset: the template's.
	Folder string `yaml:"folder" json:"folder" format:"inventory"`
	// PortGroup that joins the VMs, which is there already.
	PortGroup string `yaml:"portGroup" json:"portGroup" format:"inventory"`
	// Switch is a distributed switch that is there already: a port group is made on it for the cluster, and removed with it. Instead of `portGroup`.
	Switch string `yaml:"switch" json:"switch" format:"inventory"`
	// VLAN of the port group that is made; 0: none.
	VLAN int `yaml:"vlan" json:"vlan" default:"0" min:"0" max:"4094"`
	// Gateway of the VMs' addresses, which are those of network.subnet. Unset: none.
	Gateway string `yaml:"gateway" json:"gateway" format:"address"`
	// DHCP has the VMs' cards ask for their addresses, instead of those of network.subnet; gateway stays unset then.
	DHCP bool `yaml:"dhcp" json:"dhcp" default:"false"`
	// DNS are the VMs' name servers.
	DNS []string `yaml:"dns" json:"dns" format:"address"`
	// Domain of the VMs' names.
	Domain string `yaml:"domain" json:"domain" default:"local" format:"domain"`
	// SecureBoot switches the VMs' secure boot on or off; on needs a template that starts by EFI. Unset: the template's.
	SecureBoot *bool `yaml:"secureBoot" json:"secureBoot"`
	// VGPU is the profile of a vGPU that each VM gets: a name that the hosts offer.
	VGPU string `yaml:"vgpu" json:"vgpu" format:"inventory"`
	// PVRDMA is a port group of a distributed switch: each VM gets a card there that has RDMA by the host's own card (PVRDMA).
	PVRDMA string `yaml:"pvrdma" json:"pvrdma" format:"inventory"`
	// User that ssh logs in as in the VMs; another than root needs sudo without a password.
	User string `yaml:"user" json:"user" default:"root" format:"user"`
}
