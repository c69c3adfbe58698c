/* An endpoint's peers that need attention, and those whose rings are polled in each call. */
#ifndef IVS_PEERS_H
#define IVS_PEERS_H

#include "object/ep.h"

/* Queues the peer for the next progress of its endpoint: it has something to send, or is to be ended. */
static inline void ivs_peer_activate(struct ivs_peer *peer)
{
	if (!peer->is_active) {
		peer->is_active = true;
		ivs_list_add(&peer->ep->active, &peer->active);
	}
}

/* Removes the peer from that queue. */
static inline void ivs_peer_deactivate(struct ivs_peer *peer)
{
	if (peer->is_active) {
		peer->is_active = false;
		ivs_list_del(&peer->active);
	}
}

/* Stops polling the peer's ring in each call. */
void ivs_peer_unhot(struct ivs_peer *peer);

/*
 * Marks the peer dead, so that nothing more is received from it or sent to it, and queues it. Its operations end in the
 * next progress (ivs_peer_reap() of proto/peer.h), when none of its messages is being handled. Any layer may call this.
 */
void ivs_peer_condemn(struct ivs_peer *peer);

/* Queues a peer that has left: it is ended as soon as everything that it sent before has been received. */
void ivs_peer_retire(struct ivs_peer *peer);

#endif /* IVS_PEERS_H */
