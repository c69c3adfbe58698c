package esx

// Function is a PCI function of an ESXi host that VMs can have, as vCenter describes it.
type Function struct {
	Address  string `json:"address"`
	Name     string `json:"name"`          // in its maker's words
	Net      string `json:"net,omitempty"` // of its network card: vmnic4
	Passthru bool   `json:"passthru"`      // switched on
	// Active: it is passed through now. Where Passthru is on and this is not, the host has to boot first.
	Active  bool `json:"passthruActive"`
	Capable bool `json:"passthruCapable"`
	// VFs are those that there are, Requested those that were asked for: the host has to boot where they differ. Most: the card's.
	VFs       int `json:"vfs"`
	Requested int `json:"vfsRequested"`
	Most      int `json:"vfsMost"`
	// Uses are the host's own switches that send over it.
	Uses []string `json:"uses,omitempty"`
}

// Policies are ESXi's power policies by the words of commands: key and short name in vCenter.
var Policies = []struct {
	Word, Short string
	Key         int32
}{{"high", "static", 1}, {"balanced", "dynamic", 2}, {"low", "low", 3}, {"custom", "custom", 4}}

// Switch is a virtual switch with one port group, which sends over one card of each host.
type Switch struct {
	Name, PortGroup, Card string
	MTU                   int // bytes
	VLAN                  int // 0: none
}
