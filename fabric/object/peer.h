/* Another rank, and the channel to it. */
#ifndef IVS_PEER_H
#define IVS_PEER_H

#include "base/addr.h"
#include "base/common.h"
#include "base/list.h"
#include "proto/state.h"
#include "region/region.h"
#include "remote/state.h"
#include "ring/ring.h"

struct ivs_ep;

#define IVS_NO_SLOT UINT32_MAX

enum ivs_channel {
	IVS_CHAN_NONE, /* not connected yet */
	IVS_CHAN_RING,
	IVS_CHAN_CORE,
	IVS_CHAN_DEAD,
};

struct ivs_peer {
	/* the fields that every message needs come first */
	enum ivs_channel channel;
	uint32_t piece; /* bytes of payload in one message */
	struct ivs_ring ring;

	bool hot;
	bool broken;	/* it sent an invalid message */
	bool condemned; /* the next progress ends the peer (object/peers.h) */

	struct ivs_ep *ep;
	fi_addr_t fi_addr; /* FI_ADDR_NOTAVAIL: not in the AV */
	struct ivs_addr addr;
	uint32_t slot; /* IVS_NO_SLOT: none */
	uint32_t epoch;
	struct ivs_alive alive;
	struct ivs_peer_proto proto; /* written only by proto/ */
	struct ivs_list active;	     /* in ep->active: there is something to send */
	bool is_active;
	struct ivs_list all;	   /* in ep->peers_all */
	struct ivs_peer_core core; /* written only by remote/ */
};

/*
 * An outgoing message needs the first line, and the second from tx_bounce on; an incoming one the second. Both use the
 * third for pacing.
 */
IVS_IN_LINE(struct ivs_peer, channel, 0);
IVS_IN_LINE(struct ivs_peer, ring.tx_ring, 0);
IVS_IN_LINE(struct ivs_peer, ring.tx_ctl, 0);
IVS_IN_LINE(struct ivs_peer, ring.tx_head, 0);
IVS_IN_LINE(struct ivs_peer, ring.tx_tail, 0);
IVS_IN_LINE(struct ivs_peer, ring.activity, 1);
IVS_IN_LINE(struct ivs_peer, ring.rx_ring, 1);
IVS_IN_LINE(struct ivs_peer, ring.rx_ctl, 1);
IVS_IN_LINE(struct ivs_peer, ring.rx_head, 1);
IVS_IN_LINE(struct ivs_peer, ring.rx_shown, 1);
IVS_IN_LINE(struct ivs_peer, ring.rx_lap0, 1);
IVS_IN_LINE(struct ivs_peer, ring.row_rx, 2);
IVS_IN_LINE(struct ivs_peer, ring.row_tx, 2);
IVS_IN_LINE(struct ivs_peer, ring.run, 2);
IVS_IN_LINE(struct ivs_peer, ring.run_head, 2);
IVS_IN_LINE(struct ivs_peer, ring.spin_head, 2);
IVS_IN_LINE(struct ivs_peer, ring.spin_polls, 2);
IVS_IN_LINE(struct ivs_peer, ring.home, 2);
IVS_IN_LINE(struct ivs_peer, ring.used, 2);

#endif /* IVS_PEER_H */
