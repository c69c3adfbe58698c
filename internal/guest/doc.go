// Package guest is the host's counterpart of the programs inside a VM: the configuration for the VM's init, and the
// client of its agent, which runs programs, copies files and forwards TCP over the VM's channel.
package guest
