/* A rank's buffers for pieces of messages. */
#ifndef IVS_BOUNCE_H
#define IVS_BOUNCE_H

#include "object/ep.h"
#include "tune.h"

/* Sets up the queues of an endpoint that has an area. Returns 0 or -FI_ENOMEM. */
int ivs_bounce_pool_open(struct ivs_ep *ep);
void ivs_bounce_pool_close(struct ivs_ep *ep);

/* Takes a free bounce buffer, a far one or a near one: its number, or UINT32_MAX if none of that kind is free. */
uint32_t ivs_bounce_alloc(struct ivs_ep *ep, bool far);

/* May a bounce buffer of this one's kind be one that was never used? Its memory has to be found by the kernel. */
bool ivs_bounce_fresh(const struct ivs_ep *ep, uint32_t bounce);

/* Frees a bounce buffer that was allocated. */
void ivs_bounce_free(struct ivs_ep *ep, uint32_t bounce);

#endif /* IVS_BOUNCE_H */
