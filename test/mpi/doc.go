// Package mpi holds tests of real MPI libraries and programs over the libfabric provider
// ivshmem, on this host: Open MPI of the distribution, Open MPI, MPICH and Intel MPI of
// wheels, the programs of kernels/, and LAMMPS. The same between VMs is test/e2e's.
package mpi
