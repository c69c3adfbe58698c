package cluster

import "nearmetal/internal/guest"

// Become makes e run as the user that k is, on the hosts that have the VMs; with k nil e stays as it is.
func (k *caller) Become(e *guest.Exec) {
	if k != nil {
		e.UID, e.GID, e.Groups = k.UID, k.GID, k.Groups
	}
}

// Identity are the variables that name the user that k is (NAME=value); none with k nil.
func (k *caller) Identity() []string {
	if k == nil || k.Name == "" {
		return nil
	}
	return []string{"USER=" + k.Name, "LOGNAME=" + k.Name, "HOME=" + k.Home}
}
