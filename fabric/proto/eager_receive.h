/* The shortest way of a message from its ring to the caller. */
#ifndef IVS_EAGER_RECEIVE_H
#define IVS_EAGER_RECEIVE_H

#include "object/cq.h"

/*
 * Up to count messages that have just come, straight to buf (of the queue's format) and,
 * if it is not NULL, src. Returns how many; 0: ivs_domain_progress() has to poll; -FI_EAGAIN: there
 * is nothing.
 */
ssize_t ivs_eager_receive(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src);

#endif /* IVS_EAGER_RECEIVE_H */
