/* Another rank, and the channel to it. */
#ifndef IVS_PEER_H
#define IVS_PEER_H

#include "base/addr.h"
#include "base/common.h"
#include "base/list.h"
#include "object/adapt.h"
#include "object/request.h"
#include "region/region.h"

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
	uint32_t piece;	  /* bytes of payload in one message */
	uint32_t tx_mask; /* lines - 1 */
	uint32_t tx_shift;
	uint32_t tx_lap0;
	uint8_t *tx_ring;
	struct nm_ring_ctl *tx_ctl;
	uint64_t tx_head;
	uint64_t tx_tail;    /* what we know of the receiver's */
	uint16_t *tx_bounce; /* by line: bounce buffer + 1 that goes free with it, 0: none */
	uint32_t tx_held;    /* lines that have one */
	uint8_t *activity;   /* the receiver's byte for us */

	uint8_t *rx_ring;
	struct nm_ring_ctl *rx_ctl;
	uint64_t rx_head;
	uint64_t rx_shown; /* tail as the sender knows it */
	uint32_t rx_mask;
	uint32_t rx_shift;
	uint32_t rx_lap0;
	uint64_t row_rx, row_tx; /* rx_head, and tx_head when it last changed */
	bool hot;
	bool broken;	/* sent nonsense */
	bool condemned; /* to be ended by the next progress (object/peers.h) */
	bool deaf;	/* we cannot wake it */

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
	uint32_t used;		 /* ep->ticks when something came */
	uint32_t run;		 /* messages in a row, with none from us in between */
	uint64_t run_head;	 /* tx_head when it began */
	uint32_t run_bounced;	 /* ep->bounced when a message with a bounce buffer last came in it, */
	bool came_long;		 /* if one has since the last poll that waited */
	uint64_t spin_head;	 /* tx_head when we began to wait for an answer (spin.h) */
	uint8_t spin_polls;	 /* that are left for it */
	uint8_t spin_misses;	 /* in a row that did not come meanwhile */
	uint8_t spin_skipped;	 /* not waited for, modulo 256 */
	uint64_t quiet_until;	 /* ivs_cycles() before which we do not poll */
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
	struct ivs_nt nt;	     /* how pieces for it are copied */
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

/* A message out needs the first line, and the second from tx_bounce on; one that comes, the second. */
IVS_IN_LINE(struct ivs_peer, channel, 0);
IVS_IN_LINE(struct ivs_peer, tx_ring, 0);
IVS_IN_LINE(struct ivs_peer, tx_ctl, 0);
IVS_IN_LINE(struct ivs_peer, tx_head, 0);
IVS_IN_LINE(struct ivs_peer, tx_tail, 0);
IVS_IN_LINE(struct ivs_peer, activity, 1);
IVS_IN_LINE(struct ivs_peer, rx_ring, 1);
IVS_IN_LINE(struct ivs_peer, rx_ctl, 1);
IVS_IN_LINE(struct ivs_peer, rx_head, 1);
IVS_IN_LINE(struct ivs_peer, rx_shown, 1);
IVS_IN_LINE(struct ivs_peer, rx_lap0, 1);
IVS_IN_LINE(struct ivs_peer, row_rx, 2);
IVS_IN_LINE(struct ivs_peer, row_tx, 2);
IVS_IN_LINE(struct ivs_peer, run, 5);
IVS_IN_LINE(struct ivs_peer, run_head, 5);
IVS_IN_LINE(struct ivs_peer, spin_head, 5);
IVS_IN_LINE(struct ivs_peer, spin_polls, 5);

#endif /* IVS_PEER_H */
