package esx

// Function is a PCI function of an ESXi host that can be assigned to VMs, as described by vCenter.
type Function struct {
	Address  string `json:"address"`
	Name     string `json:"name"`          // its maker's name for it
	Net      string `json:"net,omitempty"` // name of its network card: vmnic4
	Passthru bool   `json:"passthru"`      // passthrough is enabled
	// Active: passthrough is active. If Passthru is set and this is not, the host has to reboot first.
	Active  bool `json:"passthruActive"`
	Capable bool `json:"passthruCapable"`
	// VFs is the number of existing virtual functions, Requested the configured number: the host has to reboot if
	// they differ. Most is the card's maximum.
	VFs       int `json:"vfs"`
	Requested int `json:"vfsRequested"`
	Most      int `json:"vfsMost"`
	// Uses lists the host's own switches that send over it.
	Uses []string `json:"uses,omitempty"`
}

// Policies maps the commands' words to ESXi's power policies: key and short name in vCenter.
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
