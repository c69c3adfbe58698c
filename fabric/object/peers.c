/* Which peers are polled, and which are to be ended. */
#include "object/peers.h"

void ivs_peer_unhot(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	int i;

	for (i = 0; i < ep->hot_count; i++)
		if (ep->hot[i] == p) {
			ep->hot[i] = ep->hot[--ep->hot_count];
			break;
		}
	p->hot = false;
}

void ivs_peer_condemn(struct ivs_peer *p)
{
	if (p->channel == IVS_CHAN_DEAD)
		return;
	p->channel = IVS_CHAN_DEAD;
	ivs_peer_unhot(p);
	ivs_peer_retire(p);
}

void ivs_peer_retire(struct ivs_peer *p)
{
	p->condemned = true;
	ivs_peer_activate(p);
}
