/*
 * The way to other hosts: an endpoint of another provider, opened through libfabric's
 * public interface. It carries untagged messages only; matching is ours.
 */
#ifndef IVS_INNER_H
#define IVS_INNER_H

#include "proto.h"

struct ivs_inner;

/* Is there to be one, as far as can be said without opening it? */
bool ivs_inner_wanted(void);
/* Opens it for the domain. -FI_ENODATA: there is none; then *inner is NULL. */
int ivs_inner_open(struct ivs_domain *domain, struct ivs_inner **inner);
void ivs_inner_close(struct ivs_inner *inner);
/* An endpoint's part of it: the address goes to ep->addr. */
int ivs_inner_enable(struct ivs_ep *ep);
void ivs_inner_disable(struct ivs_ep *ep);
/* Does it take an application's tagged messages as they are? */
bool ivs_inner_through(const struct ivs_domain *domain);
int ivs_inner_connect(struct ivs_peer *peer);
int ivs_inner_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/* Handles what has arrived. Gives how many messages. */
int ivs_inner_poll(struct ivs_ep *ep);
/* Before sleeping: handles what is there. Gives true if what comes next wakes us. */
bool ivs_inner_sleep(struct ivs_ep *ep);

#endif /* IVS_INNER_H */
