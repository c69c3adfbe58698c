/* The shortest path of a message from its ring to the caller. */
#ifndef IVS_EAGER_RECEIVE_H
#define IVS_EAGER_RECEIVE_H

#include "object/cq.h"

/*
 * Receives up to count messages that have just arrived, directly to buf (in the queue's format) and, if it is not NULL,
 * src. Returns their number; 0: ivs_domain_progress() has to poll; -FI_EAGAIN: there are none.
 */
ssize_t ivs_eager_receive(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src);

#endif /* IVS_EAGER_RECEIVE_H */
