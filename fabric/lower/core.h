/*
 * The way to other hosts: an endpoint of another provider, opened through libfabric's
 * public interface. It carries untagged messages only; matching is ours.
 */
#ifndef IVS_CORE_H
#define IVS_CORE_H

#include "object/ep.h"
#include "object/message.h"

struct ivs_core;

/* Is there to be one, as far as can be said without opening it? */
bool ivs_core_wanted(void);
/* Opens it for the domain. -FI_ENODATA: there is none; then *core is NULL. */
int ivs_core_open(struct ivs_domain *domain, struct ivs_core **core);
void ivs_core_close(struct ivs_core *core);
/* An endpoint's part of it: the address goes to ep->addr. */
int ivs_core_enable(struct ivs_ep *ep);
void ivs_core_disable(struct ivs_ep *ep);
/* Does it take an application's tagged messages as they are? */
bool ivs_core_passthrough(const struct ivs_domain *domain);
int ivs_core_connect(struct ivs_peer *peer);
int ivs_core_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/*
 * From time to time, for a peer on another host: asks whether it has got what went without a completion. An answer that
 * does not come ends the peer. Returns false if no question can be sent for as long as the dead are waited for.
 */
bool ivs_core_check(struct ivs_peer *peer);
/* Handles what has arrived. Returns how many messages. */
int ivs_core_poll(struct ivs_ep *ep);
/* Before sleeping: handles what is there. Returns true if what comes next wakes us. */
bool ivs_core_sleep(struct ivs_ep *ep);

#endif /* IVS_CORE_H */
