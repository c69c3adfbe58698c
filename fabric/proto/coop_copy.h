/* Large messages that both ends copy. */
#ifndef IVS_COOP_COPY_H
#define IVS_COOP_COPY_H

#include "proto/proto.h"

/* Returns true if cooperative copying pays for a message of len bytes, and this end can reach the peer's memory. */
bool ivs_coop_fits(const struct ivs_peer *peer, size_t len);

/*
 * Receiver: reads the first len bytes of a message that its sender showed (ivs_shown_find() has set msg->number),
 * together with the sender. Returns 0, a negative error, or -FI_EINPROGRESS: the sender is still writing and will send
 * an IVS_OP_COOP_END, also if an error is stored in msg->error.
 */
int ivs_coop_read(struct ivs_msg *msg, size_t len);

/*
 * Receiver: ends such a message if its sender writes no more, and reads the remaining pieces. Returns the same as
 * ivs_coop_read().
 */
int ivs_coop_end(struct ivs_msg *msg, size_t len);

/*
 * Sender: writes the pieces that it can claim of a message that it has shown; tag is that of an IVS_OP_COOP. Returns
 * false if the request is invalid.
 */
bool ivs_coop_write(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t tag);

#endif /* IVS_COOP_COPY_H */
