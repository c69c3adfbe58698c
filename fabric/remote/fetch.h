/*
 * Large messages between hosts whose receiver reads them: the sender registers them with the core provider, and our
 * own announcement says where they are. So matching stays above all channels, and nothing is copied on the way.
 */
#ifndef IVS_FETCH_H
#define IVS_FETCH_H

#include "object/ep.h"
#include "base/message.h"

struct core_ep;

/* May peer be sent an announcement of len bytes in count pieces? */
bool ivs_core_shows(const struct ivs_peer *peer, size_t count, size_t len);
/* Lets peers read tx's memory, base to base + len. Fills in where it is. false: it cannot be; nothing has changed. */
bool ivs_core_show(struct ivs_ep *ep, struct ivs_tx *tx, void *base, size_t len, struct ivs_core_rts *where);
/* From now on they cannot. */
void ivs_core_hide(struct ivs_tx *tx);
/*
 * Reads the first len bytes of an announced message into msg->rx. ops->fetched() (remote/core.h) is called at its end, which may
 * be after the peer's. false: it cannot be read, and has to be asked for.
 */
bool ivs_core_fetch(struct ivs_msg *msg, size_t len);
/* Nobody waits for it any more. */
void ivs_core_fetch_forget(struct ivs_msg *msg);

#endif /* IVS_FETCH_H */
