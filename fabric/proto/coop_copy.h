/* Large messages that both ends copy. */
#ifndef IVS_COOP_COPY_H
#define IVS_COOP_COPY_H

#include "proto/proto.h"

/* Is a message of len bytes worth it that both ends copy, and can this end reach the peer's memory? */
bool ivs_coop_fits(const struct ivs_peer *peer, size_t len);

/*
 * Receiver: reads the first len bytes of a message that its sender showed (ivs_shown_find() has set
 * msg->number), together with it. Returns 0, a negative error, or -FI_EINPROGRESS: the sender still writes, and
 * will send an IVS_OP_COOP_END, also if an error is kept in msg->error.
 */
int ivs_coop_read(struct ivs_msg *msg, size_t len);

/*
 * Receiver: ends such a message if its sender writes no more, and reads what it has left. Returns as
 * ivs_coop_read() does.
 */
int ivs_coop_end(struct ivs_msg *msg, size_t len);

/* Sender: writes what it can take of a message that it has shown; tag is that of an IVS_OP_COOP. false: that was nonsense. */
bool ivs_coop_write(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t tag);

#endif /* IVS_COOP_COPY_H */
