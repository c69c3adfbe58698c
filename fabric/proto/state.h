/*
 * The protocol's state for each peer and each endpoint. struct ivs_peer and struct ivs_ep contain it, so this file
 * declares nothing but types.
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
	int pid;			   /* process whose memory can be read, or 0 */
	bool self;			   /* the peer is in this process */
	bool marked;			   /* something refers to the peer (ivs_peer_check()) */
	bool alone;			   /* the peer cannot write our memory */
	bool helped;			   /* the peer copied a part of its last message to us */
	uint32_t coop_gen;		   /* number of the last message to us that both copied (ivs_front.word) */
	uint64_t cma_copies;		   /* copies from or to the peer's memory (CMA) */
	struct ivs_list sending;	   /* struct ivs_tx with data to send */
	struct ivs_list waiting;	   /* struct ivs_tx that wait for the receiver's ACK or CTS */
	struct ivs_list streams;	   /* struct ivs_msg in progress to us */
	size_t *held;			   /* bytes of its messages without a receive, in held_by_slot */
	size_t held_core;		   /* such bytes of a peer without a slot */
	struct ivs_ctl *ctl_head;	   /* control messages that wait for room */
	struct ivs_ctl **ctl_tail;	   /* where the next one is linked */
	uint32_t ctl_count;		   /* control messages that wait; more than IVS_CTL_MAX: one was lost */
	uint16_t open_in[IVS_OPEN_KINDS];  /* the peer's operations here, by enum ivs_open */
	uint16_t open_out[IVS_OPEN_KINDS]; /* our operations there */
	struct ivs_cma_policy reads;	   /* when the peer reads messages directly */
	struct ivs_traffic_to *traffic;	   /* its counts (proto/traffic.h), NULL: none so far */
};

/* A peer's registered memory in the region, as its table showed it (proto/target.h). */
struct ivs_target {
	const struct nm_mr *line; /* entry of the table; NULL: none */
	uint32_t slot, epoch;	  /* of the owner */
	uint64_t state, key;	  /* of the entry when it was copied */
	uint64_t origin, len;	  /* bytes; the owner's address of the first one */
	uint8_t *base;		  /* where the memory is mapped here */
	uint32_t access;	  /* NM_MR_* */
};

struct ivs_ep_proto {
	size_t ux_bytes;	  /* of unexpected messages, of all peers */
	size_t *held_by_slot;	  /* the part of ux_bytes of each slot's peers, one after another */
	size_t core_peers;	  /* peers without a slot */
	struct ivs_tx **tx_table; /* by the low 16 bits of the id */
	uint32_t *tx_free_ids;	  /* tx_free_count free indices of the table */
	size_t tx_free_count;
	size_t tx_table_size;
	uint32_t tx_gen;	  /* the high 16 bits of the last id */
	struct ivs_numbers shown; /* numbers of shown messages (proto/shown.h) */
	struct ivs_target targets[IVS_TARGETS];
	struct ivs_traffic *traffic; /* counts (proto/traffic.h), NULL: not counting */
	uint64_t asked_ms;	     /* when peers on other hosts were last probed (remote/knock.h) */
};

#endif /* IVS_PROTO_STATE_H */
