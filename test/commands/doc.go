// Package commands runs the program nearmetal on clusters whose VMs are processes (backend/fake): what the commands
// say and do, without a VM's boot.
package commands
