package state

import "nearmetal/internal/guest"

// Caller is the user who runs programs in the VMs.
type Caller struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	Name   string   `json:"name,omitempty"`
	Home   string   `json:"home,omitempty"`
}

// Become makes e run as the user k on the hosts of the VMs; if k is nil, e is unchanged.
func (k *Caller) Become(e *guest.Exec) {
	if k != nil {
		e.UID, e.GID, e.Groups = k.UID, k.GID, k.Groups
	}
}

// Identity returns the variables that name the user k (NAME=value); none if k is nil.
func (k *Caller) Identity() []string {
	if k == nil || k.Name == "" {
		return nil
	}
	return []string{"USER=" + k.Name, "LOGNAME=" + k.Name, "HOME=" + k.Home}
}
