! Where an MPI's memory lies that is asked for in Fortran, with libivshmem-mpi.so preloaded:
! "memory REGION" prints a line for each thing that it finds, of all ranks alike.
program memory
	use mpi
	use iso_c_binding
	implicit none
	integer, parameter :: n = 1000
	integer :: rank, ranks, ierr, win, next, before
	integer(kind=MPI_ADDRESS_KIND) :: bytes, base, first
	logical :: flag
	type(c_ptr) :: p
	real(8), pointer :: a(:)
	real(8) :: b(n)
	character(256) :: region

	call get_command_argument(1, region)
	call MPI_Init(ierr)
	call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
	call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
	next = mod(rank + 1, ranks)
	before = mod(rank + ranks - 1, ranks)
	bytes = 8 * n

	call MPI_Alloc_mem(bytes, MPI_INFO_NULL, p, ierr)
	call say('memory in the region', inside(p))
	call c_f_pointer(p, a, [n])
	a = rank
	call MPI_Free_mem(a, ierr)
	call say('it is freed', ierr == MPI_SUCCESS)

	call MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, p, win, ierr)
	call say('a window in the region', inside(p))
	call c_f_pointer(p, a, [n])
	a = -1
	b = rank
	first = 0
	call MPI_Win_fence(0, win, ierr)
	call MPI_Put(b, n, MPI_DOUBLE_PRECISION, next, first, n, MPI_DOUBLE_PRECISION, win, ierr)
	call MPI_Win_fence(0, win, ierr)
	call say('it works', all(a == before))
	call MPI_Win_get_attr(win, MPI_WIN_BASE, base, flag, ierr)
	call say('it begins there', flag .and. base == transfer(p, base))
	call MPI_Win_free(win, ierr)
	call say('it is freed', ierr == MPI_SUCCESS)
	call MPI_Finalize(ierr)
contains
	! All ranks must have the same answer.
	subroutine say(what, yes)
		character(*), intent(in) :: what
		logical, intent(in) :: yes
		logical :: every, some
		integer :: ierr

		call MPI_Allreduce(yes, every, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
		call MPI_Allreduce(yes, some, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
		if (rank == 0) print '(a,": ",a)', what, trim(merge('yes ', merge('some', 'no  ', some), every))
	end subroutine

	! Is it in a mapping of the region's file? By its number: who made it sees no name.
	logical function inside(p)
		type(c_ptr), intent(in) :: p
		integer(8) :: number, from, to, at
		integer :: file(13), unit, failed, dash, space
		character(32) :: mode, offset, device
		character(512) :: line

		inside = .false.
		call stat(trim(region), file, failed)
		if (failed /= 0) return
		at = transfer(p, at)
		open(newunit=unit, file='/proc/self/maps', action='read')
		do
			read(unit, '(a)', iostat=failed) line
			if (failed /= 0) exit
			dash = index(line, '-')
			space = index(line, ' ')
			read(line(:dash - 1), '(z16)') from
			read(line(dash + 1:space - 1), '(z16)') to
			read(line(space + 1:), *) mode, offset, device, number
			if (at >= from .and. at < to) inside = number == file(2)
		end do
		close(unit)
	end function
end program
