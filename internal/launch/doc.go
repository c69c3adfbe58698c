// Package launch is how an MPI library's own launcher (mpirun, mpiexec, orterun,
// prterun) reaches into the VMs: which launcher a command is, the environment and
// the host files that make it start its daemons in the VMs, the command line by
// which it calls our remote shell, and the way back to it. docs/run-mpi.md is its
// user's side.
package launch
