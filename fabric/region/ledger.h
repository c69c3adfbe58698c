/*
 * What a rank says to its neighbours where other VMs cannot change it: memory of its own, which
 * they map. The region's tables hold everything else.
 */
#ifndef IVS_LEDGER_H
#define IVS_LEDGER_H

#include <pthread.h>
#include <stdbool.h>

#include "base/layout.h"
#include "base/limits.h"

#define IVS_SHOWN_MAX 4096 /* messages that a rank shows to its neighbours at a time */

/* A message that one neighbour may read from the owner's memory. Owner: it writes number last. */
struct ivs_shown {
	/*
	 * Another one for each message, never 0, and nobody can guess it: the low 16 bits are the high ones of
	 * its id. Whoever answers the message says it. 0: none.
	 */
	uint64_t number;
	uint32_t slot, epoch; /* of whom it is for */
	struct {
		uint64_t addr, len; /* bytes; 0 after the last piece */
	} iov[IVS_IOV_MAX];
	uint64_t back; /* of the pieces that the owner itself writes (proto/coop_copy.c) */
	uint64_t pad[5];
};

_Static_assert(sizeof(struct ivs_shown) == 2 * NM_LAYOUT_LINE, "what two pieces need is in one line");

/* A message to the owner that its sender may write a part of (proto/coop_copy.c). Owner: it writes word last. */
struct ivs_front {
	uint64_t word;	    /* which message, and the pieces that the owner reads. 0: the rest is being written */
	uint64_t addr, len; /* of the owner's memory; bytes */
	uint64_t number;    /* the message's, as in its sender's ledger */
	uint64_t piece;	    /* bytes */
	uint64_t pad[3];
};

_Static_assert(sizeof(struct ivs_front) == NM_LAYOUT_LINE, "one line for each sender");

/* In a file without a name, written by its owner only. Pages that nobody touches take no memory. */
struct ivs_ledger {
	/*
	 * nm_mr.check of the lines that are in force, 0 for others: a line that was withdrawn
	 * can be put back into the region, but not here.
	 */
	uint64_t check[NM_LAYOUT_MR_COUNT];
	uint64_t pad;
	struct ivs_shown shown[IVS_SHOWN_MAX];	     /* by the low 16 bits of the id */
	struct ivs_front front[NM_LAYOUT_MAX_SLOTS]; /* by the sender's slot */
	struct nm_proof proof;			     /* whose ledger it is; written before others can find it */
	/*
	 * A robust mutex that the owner's heart holds. When that thread ends, also by SIGKILL or exec, the kernel takes
	 * the owner out of it, which it does before it frees the process's pid. (Linux before 5.18 may not do so for a
	 * process that it ends because memory is short. The heartbeat shows that.)
	 */
	_Alignas(NM_LAYOUT_LINE) pthread_mutex_t life;
};

/* Makes one for this process, in a file by which neighbours find it: proof.ledger. NULL: there can be none. */
struct ivs_ledger *ivs_ledger_make(void);
void ivs_ledger_free(struct ivs_ledger *ledger);

/* Shows that this process lives, until it ends or takes that back. Both by the same thread, which lives as long. */
void ivs_ledger_hold(struct ivs_ledger *ledger);
void ivs_ledger_release(struct ivs_ledger *ledger);

/* Does the process whose ledger it is live? A read of memory, which is mostly in the cache. */
bool ivs_ledger_held(const struct ivs_ledger *ledger);

/* Maps that of process pid, which has shown this proof. NULL: it is not there, or another one. */
const struct ivs_ledger *ivs_ledger_map(int pid, const struct nm_proof *proof);
void ivs_ledger_unmap(const struct ivs_ledger *ledger);

#endif /* IVS_LEDGER_H */
