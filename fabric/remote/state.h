/* The core provider's state for each peer. struct ivs_peer contains it, so this file declares nothing but types. */
#ifndef IVS_REMOTE_STATE_H
#define IVS_REMOTE_STATE_H

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

struct ivs_peer;

struct ivs_peer_core {
	fi_addr_t addr;		   /* in the core provider's AV; FI_ADDR_NOTAVAIL: not there yet */
	uint64_t uid;		   /* the peer's id on the wire, 0: not received yet */
	struct ivs_peer *next;	   /* in the same chain of core_ep.by_uid */
	uint64_t lost_ms;	   /* time since which no question can be sent, 0: it can */
	int knock;		   /* a connection attempt to the peer (remote/knock.h), -1: none */
	uint32_t sent;		   /* messages to the peer */
	uint32_t seen;		   /* messages from the peer */
	uint32_t checked;	   /* sent at the last check of unsure */
	uint32_t reads;		   /* messages from the peer that were read through the core provider */
	uint32_t passthrough_sent; /* messages to the peer that the core provider matches */
	bool unsure;		   /* the last message is not confirmed yet */
	bool asked;		   /* a question about it is in flight */
	bool turn;		   /* the peer's next message is held (refuse_held() of remote/wire.c) */
};

#endif /* IVS_REMOTE_STATE_H */
