package spec

// Placement is how VMs are put onto the host.
type Placement struct {
	// Strict refuses a cluster with more vCPUs than there are CPUs, instead of a warning.
	Strict bool `yaml:"strict" json:"strict" default:"false"`
}
