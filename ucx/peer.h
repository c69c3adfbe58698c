/* Peers: the ranks behind endpoints, and those that send to us. */
#ifndef IVU_PEER_H
#define IVU_PEER_H

#include "object.h"

/* Connects a peer that is not yet. Returns IVU_OK, or IVU_ERR_CONNECTION_RESET: it is gone. */
ivu_status ivu_peer_connect(struct ivu_peer *peer);
/* Does it live? Condemns it if not. */
bool ivu_peer_alive(struct ivu_peer *peer);
/* ivs_peer_condemn(), after which the short way is closed. */
void ivu_peer_condemn(struct ivu_peer *peer);
/* Sets peer->blocked. */
void ivu_peer_gate(struct ivu_peer *peer);
/* Are all puts to it done? */
bool ivu_peer_put_done(struct ivu_peer *peer);
void ivu_peer_free(struct ivu_peer *peer);
/* Reports to UCX that an endpoint's peer is gone, once. */
void ivu_ep_fail(struct ivu_ep *ep);

#endif /* IVU_PEER_H */
