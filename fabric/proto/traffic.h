/*
 * Counts the operations that an endpoint started with each peer: their number, bytes and size classes, by channel.
 * Counting is on where NEARMETAL_TRAFFIC names a directory (docs/run-mpi.md). It replaces the calls for messages, so
 * that it costs nothing where it is off.
 */
#ifndef IVS_TRAFFIC_H
#define IVS_TRAFFIC_H

#include <rdma/fi_tagged.h>

#include "base/layout.h"
#include "object/ep.h"
#include "object/peer.h"

#define IVS_TRAFFIC_CLASSES 6 /* up to 64 B, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and more */

enum ivs_traffic_way {
	IVS_TRAFFIC_REGION, /* through the region: in a ring, a buffer, or a copy from or to memory in it */
	IVS_TRAFFIC_CMA,    /* read or written in the other's memory */
	IVS_TRAFFIC_FABRIC, /* over the core provider */
	IVS_TRAFFIC_WAYS
};

/* The traffic of one channel to a peer, in one cache line. */
struct ivs_traffic_sum {
	_Alignas(64) int64_t bytes;
	int64_t ops[IVS_TRAFFIC_CLASSES];
};

struct ivs_traffic_to {
	struct ivs_traffic_sum by[IVS_TRAFFIC_WAYS];
	uint64_t eager[IVS_INLINE_MAX + 1]; /* messages in the ring itself, by length; not in a sum yet */
	struct ivs_addr addr;
	struct ivs_traffic_to *next; /* in the list of all peers */
};

/* The size class of an operation; index: the number of bits of its length - 1. */
extern const uint8_t ivs_traffic_class[65];

/*
 * Starts counting, if requested; the endpoint has its operations. counted: send, senddata, inject and injectdata that
 * count what they send, or NULL: these are wrapped as the others are.
 */
void ivs_traffic_open(struct ivs_ep *ep, const struct fi_ops_tagged *counted);
/* Stops counting. write: first writes the counts to a file. */
void ivs_traffic_close(struct ivs_ep *ep, bool write);

/*
 * Counts an operation of len bytes; ep->proto.traffic is not NULL. copies: the peer's cma_copies before it, RMA only.
 */
void ivs_traffic_count(struct ivs_ep *ep, fi_addr_t dest, size_t len, const uint64_t *copies);
/* Returns the direct copies from and to the memory of dest so far. */
uint64_t ivs_traffic_copies(const struct ivs_ep *ep, fi_addr_t dest);
/*
 * Moves a message between the counts of the region and of CMA. read: it is to be read in place; else it is sent after
 * all.
 */
void ivs_traffic_announced(struct ivs_peer *peer, size_t len, bool read);

static inline unsigned int ivs_traffic_class_of(size_t len)
{
	/* len 0 is in the class of len 1. */
	return ivs_traffic_class[64 - __builtin_clzll((len - (len != 0)) | 1)];
}

static inline void ivs_traffic_add(struct ivs_traffic_sum *s, size_t len)
{
	s->ops[ivs_traffic_class_of(len)]++;
	s->bytes += (int64_t) len;
}

/*
 * Counts a message of len bytes that was written into the lines of the ring of dest, an existing peer.
 * ep->proto.traffic is not NULL.
 */
static inline void ivs_traffic_count_ring(struct ivs_ep *ep, fi_addr_t dest, size_t len)
{
	struct ivs_traffic_to *to = ep->peers[dest]->proto.traffic;

	if (likely(to != NULL))
		to->eager[len]++;
	else
		ivs_traffic_count(ep, dest, len, NULL);
}

#endif /* IVS_TRAFFIC_H */
