// Package launch lets an MPI library's own launcher (mpirun, mpiexec, orterun, prterun) start ranks in the VMs. It
// detects which launcher a command is, writes the environment and the host files that make the launcher start its
// daemons in the VMs, parses the command line by which it calls nearmetal's remote shell, and routes the connection
// back to it. docs/run-mpi.md documents it for users.
package launch
