/* A rank's buffers for pieces of messages. */
#ifndef IVS_CHUNK_H
#define IVS_CHUNK_H

#include "ivshmem.h"

/* Bytes of a message from which its pieces go through far chunks: behind others, and alone. */
#define IVS_FAR_MIN	(128 << 10)
#define IVS_FAR_ALONE	(4 << 20)

/* Sets up the queues of an endpoint that has an area. Gives 0 or -FI_ENOMEM. */
int ivs_chunks_open(struct ivs_ep *ep);
void ivs_chunks_close(struct ivs_ep *ep);

/* Do pieces of a message of len bytes, that is sent to peer now, go through far chunks? */
static inline bool ivs_chunk_far(const struct ivs_peer *peer, size_t len)
{
	return len >= IVS_FAR_ALONE || (len >= IVS_FAR_MIN && !ivs_list_empty(&peer->sending));
}

/* Takes a free chunk, a far one or a near one: its number, or UINT32_MAX if none of that kind is free. */
uint32_t ivs_chunk_take(struct ivs_ep *ep, bool far);

/* May a chunk of this one's kind be one that was never used? Its memory has to be found by the kernel. */
bool ivs_chunk_fresh(const struct ivs_ep *ep, uint32_t chunk);

/* Gives a chunk back, which was taken once. */
void ivs_chunk_put(struct ivs_ep *ep, uint32_t chunk);

#endif /* IVS_CHUNK_H */
