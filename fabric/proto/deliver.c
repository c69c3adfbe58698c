/*
 * Functions that the core provider calls for received messages. Every endpoint of the libfabric provider is enabled
 * with them.
 */
#include "proto/proto.h"

const struct ivs_core_ops ivs_deliver = {
	.receive = ivs_receive,
	.fetched = ivs_core_fetched,
	.peer_by_addr = ivs_peer_by_addr,
	.peer_lookup = ivs_peer_lookup,
	.hide_all = ivs_tx_hide_all,
};
