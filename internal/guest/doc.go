// Package guest is the control plane's side of what runs inside a VM: the
// configuration that its init reads, and the client of its agent, which runs
// programs, copies files and forwards TCP over the VM's channel.
package guest
