/*
 * What the protocol keeps of each peer and each endpoint. struct ivs_peer and struct ivs_ep hold it, so this file declares
 * types and nothing else.
 */
#ifndef IVS_PROTO_STATE_H
#define IVS_PROTO_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/adapt.h"
#include "base/list.h"
#include "object/request.h"
#include "region/numbers.h"
#include "tune.h"

struct ivs_traffic;
struct ivs_traffic_to;
struct nm_mr;

struct ivs_peer_proto {
	int pid;			   /* whose memory we can read, or 0 */
	bool self;			   /* the peer is of this very process */
	bool marked;			   /* something names the peer (ivs_peer_check()) */
	bool alone;			   /* the peer cannot write our memory */
	bool helped;			   /* the peer copied a part of its last message to us */
	uint32_t coop_gen;		   /* of the last message that both copied to us (ivs_front.word) */
	uint64_t cma_copies;		   /* from or to the peer's memory (CMA) */
	struct ivs_list sending;	   /* struct ivs_tx with data to send */
	struct ivs_list waiting;	   /* struct ivs_tx that wait for the receiver's ACK or CTS */
	struct ivs_list streams;	   /* struct ivs_msg under way to us */
	size_t *held;			   /* bytes of the peer's messages without a receive: in held_by_slot, */
	size_t held_core;		   /* or here */
	struct ivs_ctl *ctl_head;	   /* control messages that wait for room */
	struct ivs_ctl **ctl_tail;	   /* where the next one is linked */
	uint32_t ctl_count;		   /* control messages that wait; more than IVS_CTL_MAX: one was lost */
	uint16_t open_in[IVS_OPEN_KINDS];  /* the peer's operations here, by enum ivs_open */
	uint16_t open_out[IVS_OPEN_KINDS]; /* our operations there */
	struct ivs_cma_policy reads;	   /* when the peer reads messages directly */
	struct ivs_traffic_to *traffic;	   /* what is counted (proto/traffic.h), NULL: nothing so far */
};

/* Registered memory of a peer's in the region, as its table showed it (proto/target.h). */
struct ivs_target {
	const struct nm_mr *line; /* of the table; NULL: nothing is here */
	uint32_t slot, epoch;	  /* of the peer whose it is */
	uint64_t state, key;	  /* the line's when it was copied */
	uint64_t origin, len;	  /* bytes; what its owner calls the first one */
	uint8_t *base;		  /* where that is mapped here */
	uint32_t access;	  /* NM_MR_* */
};

struct ivs_ep_proto {
	size_t ux_bytes;	  /* that unexpected messages take, of all peers */
	size_t *held_by_slot;	  /* the part of it that each slot's peers have, one after another */
	size_t core_peers;	  /* peers that are in no slot */
	struct ivs_tx **tx_table; /* by the low 16 bits of the id */
	uint32_t *tx_free_ids;	  /* tx_free_count indices of the table that are free */
	size_t tx_free_count;
	size_t tx_table_size;
	uint32_t tx_gen;	  /* the high 16 bits of the last id */
	struct ivs_numbers shown; /* of messages (proto/shown.h) */
	struct ivs_target targets[IVS_TARGETS];
	struct ivs_traffic *traffic; /* what is counted (proto/traffic.h), NULL: nothing */
	uint64_t asked_ms;	     /* when peers on other hosts were asked whether they are there (remote/knock.h) */
};

#endif /* IVS_PROTO_STATE_H */
