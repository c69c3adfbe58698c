// Package cluster is the life of a cluster: up, ready, exec, down; the record of
// what runs, and the recovery of what a crash left.
//
// The process that starts a cluster owns it: it is the parent of the VMs and holds the
// cluster's lock, so that its death, however it comes, ends the VMs (PDEATHSIG) and
// frees the lock. `nearmetal run` owns its cluster itself; `nearmetal up` leaves a small
// supervisor behind that does. Every other command reaches the owner through the
// cluster's control socket.
package cluster
