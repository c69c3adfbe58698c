/* Another rank, and the channel to it. */
#ifndef IVS_PEER_H
#define IVS_PEER_H

#include "base/addr.h"
#include "base/common.h"
#include "base/list.h"
#include "base/adapt.h"
#include "object/request.h"
#include "region/region.h"
#include "ring/ring.h"

struct ivs_ep;
struct ivs_traffic_to;

#define IVS_NO_SLOT UINT32_MAX

enum ivs_channel {
	IVS_CHAN_NONE, /* not connected yet */
	IVS_CHAN_RING,
	IVS_CHAN_CORE,
	IVS_CHAN_DEAD,
};

struct ivs_peer {
	/* first what every message needs */
	enum ivs_channel channel;
	uint32_t piece; /* bytes of payload in one message */
	struct ivs_ring ring;

	bool hot;
	bool broken;	/* sent nonsense */
	bool condemned; /* to be ended by the next progress (object/peers.h) */

	struct ivs_ep *ep;
	fi_addr_t fi_addr; /* FI_ADDR_NOTAVAIL: not in the AV */
	struct ivs_addr addr;
	uint32_t slot; /* NONE: of no slot */
	uint32_t epoch;
	int pid;	   /* whose memory we can read, or 0 */
	bool self;	   /* of this very process */
	bool marked;	   /* something names it (ivs_peer_check()) */
	bool alone;	   /* it cannot write our memory */
	bool helped;	   /* it copied a part of its last message to us */
	uint32_t coop_gen; /* of the last message that both copied to us (ivs_front.word) */
	struct ivs_alive alive;
	uint64_t cma_copies; /* from or to its memory (CMA) */
	fi_addr_t core_addr; /* in the core provider's AV */
	uint64_t core_uid;   /* what it calls itself there, 0: not heard of */
	struct ivs_peer *core_next;
	struct ivs_list sending; /* struct ivs_tx with data to send */
	struct ivs_list waiting; /* for the receiver's ACK or CTS */
	struct ivs_list streams; /* struct ivs_msg under way to us */
	size_t *held;		 /* bytes of its messages without a receive: of ep->held_by_slot, */
	size_t held_core;	 /* or this */
	struct ivs_ctl *ctl_head;
	struct ivs_ctl **ctl_tail;
	uint32_t ctl_count;
	uint16_t open_in[IVS_OPEN_KINDS];  /* of its here, by enum ivs_open */
	uint16_t open_out[IVS_OPEN_KINDS]; /* of ours there */
	struct ivs_list active;		   /* in ep->active: something to send */
	bool is_active;
	struct ivs_list all;	     /* in ep->peers_all */
	int knock;		     /* a connection that shows whether it is there (remote/knock.h), -1: none */
	struct ivs_cma_policy reads; /* when it reads messages directly */
	uint32_t core_sent;	     /* messages to it */
	uint32_t core_seen;	     /* messages from it */
	uint32_t core_checked;	     /* core_sent at the last check of core_unsure */
	bool core_unsure;	     /* nothing says so far that the last one has arrived */
	bool core_asked;	     /* a question about it is on its way */
	bool core_turn;	       /* the message of its whose turn it is waits for room (refuse_held() of remote/wire.c) */
	uint64_t core_lost_ms; /* since when none can be sent, 0: it can */
	uint32_t core_reads;   /* messages of its that were read through the core provider */
	uint32_t passthrough_sent;	/* to it, which the core provider matches */
	struct ivs_traffic_to *traffic; /* what is counted (proto/traffic.h), NULL: nothing so far */
};

/* A message out needs the first line, and the second from tx_bounce on; one that comes, the second. Both pace the next by the third. */
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
