/* The queues of receives that wait for messages, and of messages that wait for receives. */
#ifndef IVS_MATCH_H
#define IVS_MATCH_H

#include "object/ep.h"

struct ivs_rx *ivs_rx_get(struct ivs_ep *ep);
void ivs_rx_put(struct ivs_ep *ep, struct ivs_rx *rx);
/*
 * Removes the first matching receive from the queue and returns it. For a multi-receive, returns a part for total
 * bytes. Returns NULL without a match.
 */
struct ivs_rx *ivs_match_posted(struct ivs_ep *ep, struct ivs_queue *q, bool tagged, struct ivs_peer *peer,
				uint64_t tag, size_t total);
/* Returns the first unexpected message that matches, or NULL. */
struct ivs_msg *ivs_match_unexpected(struct ivs_list *ux, bool tagged, struct ivs_peer *peer, uint64_t tag,
				     uint64_t ignore);
/*
 * Completes and frees a receive, for a message of total bytes of which those that fit were placed. err: 0 or a positive
 * error.
 */
void ivs_rx_complete(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged, struct ivs_peer *peer, size_t total,
		     uint64_t tag, bool has_data, uint64_t data, int err);
/* Returns true if msg began as a tagged message. */
bool ivs_msg_tagged(const struct ivs_msg *msg);

#endif /* IVS_MATCH_H */
