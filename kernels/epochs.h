/* Checks of MPI's one-sided synchronisation: the declarations that nm_epochs' parts share. */
#ifndef EPOCHS_H
#define EPOCHS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job {
	int rank, ranks;
	long rounds;
	size_t count; /* 64-bit words of a block */
	MPI_Comm comm;
	MPI_Group all; /* of comm */
	MPI_Win win;   /* a block of each rank, then SPARE words */
	uint64_t *base;
	uint64_t *block; /* to send from and receive into */
};

/* Words after the blocks. */
enum { FIRST, SECOND, THIRD, FOURTH, SPARE = 8 };

struct check {
	const char *name;
	bool (*run)(struct job *j); /* false: a fault on this rank */
};

extern const struct check active_checks[], passive_checks[]; /* ended by a NULL name */
/* Checks with windows of their own, which run once. */
extern const struct check window_checks[];

/* The current step of this rank, printed when a wait times out. */
extern const char *volatile stage;
#define DO(call) (stage = #call, (void) (call))

/* Returns zeroed memory; ends the job if there is none. */
void *allocate(size_t bytes);
/* Displacement, in words, of rank's block and of spare word s. */
MPI_Aint at(const struct job *j, int rank);
MPI_Aint spare(const struct job *j, int s);
/* Sets the window to zero on all ranks; no epoch may be open. */
void clear(struct job *j);
/* fill() fills j->block with the data that rank sends in a phase; same() compares words with it. */
void fill(struct job *j, uint64_t phase);
bool same(const struct job *j, const uint64_t *words, int from, uint64_t phase);
/* Puts j->block into this rank's block at rank to; within an epoch. */
void put(struct job *j, int to);
/* Returns a group of one rank, or of all ranks but this one, which the caller frees. */
MPI_Group group_of(const struct job *j, int rank);
MPI_Group others(const struct job *j);

static inline int right_of(const struct job *j)
{
	return (j->rank + 1) % j->ranks;
}

static inline int left_of(const struct job *j)
{
	return (j->rank + j->ranks - 1) % j->ranks;
}

#endif
