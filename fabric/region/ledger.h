/*
 * A rank's statements to its neighbours that other VMs cannot change: memory of its own, which the neighbours map. The
 * region's tables hold everything else.
 */
#ifndef IVS_LEDGER_H
#define IVS_LEDGER_H

#include <pthread.h>
#include <stdbool.h>

#include "base/layout.h"
#include "base/limits.h"

#define IVS_SHOWN_MAX 4096 /* messages that a rank shows to its neighbours at a time */

/* A message that one neighbour may read from the owner's memory. The owner writes number last. */
struct ivs_shown {
	/*
	 * Different for each message, never 0, and not predictable: its low 16 bits are the high ones of the message's
	 * id. A valid answer to the message contains it. 0: none.
	 */
	uint64_t number;
	uint32_t slot, epoch; /* of the receiver */
	struct {
		uint64_t addr, len; /* bytes; 0 after the last piece */
	} iov[IVS_IOV_MAX];
	uint64_t back; /* pieces that the owner writes itself, and flags (proto/coop_copy.c) */
	uint64_t pad[5];
};

_Static_assert(sizeof(struct ivs_shown) == 2 * NM_LAYOUT_LINE, "what two pieces need is in one line");

/* A message to the owner of which its sender may write a part (proto/coop_copy.c). The owner writes word last. */
struct ivs_front {
	uint64_t word;	    /* the message, and the pieces that the owner reads. 0: other fields are being written */
	uint64_t addr, len; /* of the owner's memory; bytes */
	uint64_t number;    /* of the message, as in its sender's ledger */
	uint64_t piece;	    /* bytes */
	uint64_t pad[3];
};

_Static_assert(sizeof(struct ivs_front) == NM_LAYOUT_LINE, "one line for each sender");

/* A ledger, in a file without a name that only its owner writes. Pages that are never touched need no memory. */
struct ivs_ledger {
	/*
	 * nm_mr.check of the valid entries, 0 for others: a withdrawn entry can be put back into the region, but not
	 * here.
	 */
	uint64_t check[NM_LAYOUT_MR_COUNT];
	uint64_t pad;
	struct ivs_shown shown[IVS_SHOWN_MAX];	     /* by the low 16 bits of the id */
	struct ivs_front front[NM_LAYOUT_MAX_SLOTS]; /* by the sender's slot */
	struct nm_proof proof;			     /* identifies the owner; written before others can find it */
	/*
	 * A robust mutex that the owner's heartbeat thread holds. When that thread ends, also by SIGKILL or exec, the
	 * kernel releases the mutex, before it frees the process's pid. (Linux before 5.18 may not do so for a process
	 * that it ends because memory is short. The heartbeat shows that.)
	 */
	_Alignas(NM_LAYOUT_LINE) pthread_mutex_t life;
};

/* Creates a ledger for this process, in a file by which neighbours find it: proof.ledger. Returns NULL on failure. */
struct ivs_ledger *ivs_ledger_make(void);
void ivs_ledger_free(struct ivs_ledger *ledger);

/*
 * Shows that this process is alive, until it ends or calls ivs_ledger_release(). The same thread must call both, and
 * live as long.
 */
void ivs_ledger_hold(struct ivs_ledger *ledger);
void ivs_ledger_release(struct ivs_ledger *ledger);

/* Returns true if the ledger's owner is alive. It reads one word of memory, mostly in the cache. */
bool ivs_ledger_held(const struct ivs_ledger *ledger);

/* Maps the ledger of process pid, which has shown this proof. Returns NULL if it has none, or another one. */
const struct ivs_ledger *ivs_ledger_map(int pid, const struct nm_proof *proof);
void ivs_ledger_unmap(const struct ivs_ledger *ledger);

#endif /* IVS_LEDGER_H */
