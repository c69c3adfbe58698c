/* Peers: the ranks behind endpoints, and those that send to this rank. */
#ifndef IVU_PEER_H
#define IVU_PEER_H

#include "object.h"

/* Connects a peer if it is not connected yet. Returns IVU_OK, or IVU_ERR_CONNECTION_RESET if it is gone. */
ivu_status ivu_peer_connect(struct ivu_peer *peer);
/* Returns whether the peer lives. Condemns it if not. */
bool ivu_peer_alive(struct ivu_peer *peer);
/* Calls ivs_peer_condemn(), and closes the fast path. */
void ivu_peer_condemn(struct ivu_peer *peer);
/* Sets peer->blocked. */
void ivu_peer_gate(struct ivu_peer *peer);
/* Returns whether all puts to the peer are complete. */
bool ivu_peer_put_done(struct ivu_peer *peer);
void ivu_peer_free(struct ivu_peer *peer);
/* Reports to UCX that an endpoint's peer is gone, once. */
void ivu_ep_fail(struct ivu_ep *ep);

#endif /* IVU_PEER_H */
