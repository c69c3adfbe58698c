/*
 * What an endpoint started with each peer: operations, bytes and size classes, by channel. They are counted where
 * NEARMETAL_TRAFFIC names a directory (docs/fabric.md). Without it the calls of messages are the ones that they
 * always were: counting takes their place, it is not asked about in them.
 */
#ifndef IVS_TRAFFIC_H
#define IVS_TRAFFIC_H

#include "object/ep.h"

#define IVS_TRAFFIC_CLASSES	6	/* up to 64 B, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and more */

enum ivs_traffic_way {
	IVS_TRAFFIC_REGION,	/* by the region: in a ring, a buffer, or a copy from or to memory in it */
	IVS_TRAFFIC_CMA,	/* read or written in the other's memory */
	IVS_TRAFFIC_FABRIC,	/* over the core provider */
	IVS_TRAFFIC_WAYS
};

/* Begins to count, if that is asked for; the endpoint has its operations. */
void ivs_traffic_open(struct ivs_ep *ep);
/* Ends that. write: puts the counts into a file of their own first. */
void ivs_traffic_close(struct ivs_ep *ep, bool write);

/* Counts an operation of len bytes; ep->traffic is not NULL. copies: peer's cma_copies before it, RMA only. */
void ivs_traffic_count(struct ivs_ep *ep, fi_addr_t dest, size_t len, const uint64_t *copies);
/* Direct copies from and to the memory of dest so far. */
uint64_t ivs_traffic_copies(const struct ivs_ep *ep, fi_addr_t dest);
/* A message that is counted as the region's is to be read where it is, or is not after all. */
void ivs_traffic_announced(struct ivs_peer *peer, size_t len, bool read);

#endif /* IVS_TRAFFIC_H */
