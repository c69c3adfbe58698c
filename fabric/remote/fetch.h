/*
 * Large messages between hosts that the receiver reads: the sender registers them with the core provider, and an
 * announcement of this provider states their place. Therefore matching stays above all channels, and nothing is copied
 * on the way.
 */
#ifndef IVS_FETCH_H
#define IVS_FETCH_H

#include "object/ep.h"
#include "base/message.h"

struct core_ep;

/* Returns true if a message of len bytes in count pieces may be announced to peer. */
bool ivs_core_shows(const struct ivs_peer *peer, size_t count, size_t len);
/*
 * Lets peers read tx's memory, base to base + len, and fills in its place. Returns false, without any change, if that
 * is impossible.
 */
bool ivs_core_show(struct ivs_ep *ep, struct ivs_tx *tx, void *base, size_t len, struct ivs_core_rts *where);
/* Ends the peers' access. */
void ivs_core_hide(struct ivs_tx *tx);
/*
 * Reads the first len bytes of an announced message into msg->rx. ops->fetched() (remote/core.h) is called at its end,
 * which may be after the peer's. Returns false if it cannot be read, and has to be requested.
 */
bool ivs_core_fetch(struct ivs_msg *msg, size_t len);
/* Detaches a read from its message, which is freed. */
void ivs_core_fetch_forget(struct ivs_msg *msg);

#endif /* IVS_FETCH_H */
