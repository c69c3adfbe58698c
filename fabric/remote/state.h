/* What the core provider's side keeps of each peer. struct ivs_peer holds it, so this file declares types and nothing else. */
#ifndef IVS_REMOTE_STATE_H
#define IVS_REMOTE_STATE_H

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

struct ivs_peer;

struct ivs_peer_core {
	fi_addr_t addr;		   /* in the core provider's AV; FI_ADDR_NOTAVAIL: not there yet */
	uint64_t uid;		   /* what the peer calls itself there, 0: not heard of */
	struct ivs_peer *next;	   /* in the same chain of core_ep.by_uid */
	uint64_t lost_ms;	   /* since when no question can be sent, 0: it can */
	int knock;		   /* a connection that shows whether the peer is there (remote/knock.h), -1: none */
	uint32_t sent;		   /* messages to the peer */
	uint32_t seen;		   /* messages from the peer */
	uint32_t checked;	   /* sent at the last check of unsure */
	uint32_t reads;		   /* messages from the peer that were read through the core provider */
	uint32_t passthrough_sent; /* messages to the peer that the core provider matches */
	bool unsure;		   /* nothing shows so far that the last message has arrived */
	bool asked;		   /* a question about it is on its way */
	bool turn;		   /* the peer's next message waits for room (refuse_held() of remote/wire.c) */
};

#endif /* IVS_REMOTE_STATE_H */
