/* The queues of receives that wait for messages, and of messages that wait for receives. */
#ifndef IVS_MATCH_H
#define IVS_MATCH_H

#include "object/ep.h"

struct ivs_rx *ivs_rx_get(struct ivs_ep *ep);
void ivs_rx_put(struct ivs_ep *ep, struct ivs_rx *rx);
/*
 * Takes the first receive that fits out of the queue; of a multi-receive, a part
 * for total bytes. NULL: none.
 */
struct ivs_rx *ivs_match_posted(struct ivs_ep *ep, struct ivs_queue *q, bool tagged, struct ivs_peer *peer,
				uint64_t tag, size_t total);
/* The first unexpected message that fits, or NULL. */
struct ivs_msg *ivs_match_unexpected(struct ivs_list *ux, bool tagged, struct ivs_peer *peer, uint64_t tag,
				     uint64_t ignore);
/*
 * Ends a receive: len of total bytes were placed. err: 0 or positive. The receive is
 * given back.
 */
void ivs_rx_complete(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged, struct ivs_peer *peer, size_t total,
		     uint64_t tag, bool has_data, uint64_t data, int err);
/* Is it a tagged message's start? */
bool ivs_msg_tagged(const struct ivs_msg *msg);

#endif /* IVS_MATCH_H */
