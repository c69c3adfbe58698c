/* Endpoints. */
#ifndef IVS_EP_H
#define IVS_EP_H

#include <rdma/fi_endpoint.h>

#include "base/addr.h"
#include "base/lib.h"
#include "base/limits.h"
#include "base/param.h"
#include "object/av.h"
#include "object/cntr.h"
#include "object/cq.h"
#include "object/domain.h"
#include "object/mr.h"
#include "object/peer.h"
#include "proto/state.h"
#include "ring/home.h"
#include "tune.h"

struct core_ep;

struct ivs_ep {
	struct fid_ep fid;
	struct ivs_domain *domain;
	struct ivs_av *av;
	struct ivs_cq *tx_cq, *rx_cq;
	struct ivs_cntr *cntr[4];     /* IVS_CNTR_* */
	struct ivs_cntr *rma_cntr[2]; /* FI_REMOTE_READ, FI_REMOTE_WRITE */
	struct ivs_list domain_link, av_link;
	uint64_t caps;
	uint64_t tx_flags, rx_flags; /* default operation flags */
	uint64_t tx_comp, rx_comp;   /* FI_COMPLETION unless selective */
	uint64_t msg_order;
	size_t inject_max;
	size_t short_max; /* bytes that fit the ring in addition to remote CQ data */
	size_t min_multi_recv;
	bool enabled;
	bool passthrough; /* the core provider receives tagged messages */
	struct ivs_addr addr;
	struct ivs_addr want; /* requested address, kind 0: any */

	struct ivs_peer **peers; /* by fi_addr; NULL: not found yet */
	size_t peers_size;
	struct ivs_peer **by_slot;
	struct ivs_list peers_all;
	struct ivs_list active;
	struct ivs_peer *hot[IVS_HOT_MAX];
	int hot_count;
	uint32_t turn; /* next slot to poll in the rotation */
	uint32_t ticks;
	uint64_t checked_ms;
	uint32_t newcomers; /* peers created since the last ivs_peer_check() */
	struct nm_slot *me;

	struct ivs_queue tagged, msg;
	struct ivs_list ux_tagged, ux_msg, claimed;
	struct ivs_rx *rx_free, *rx_blocks;

	struct ivs_home home;
	struct ivs_cq *sink;	   /* discards completions of an endpoint without a queue */
	struct core_ep *core;	   /* remote/core_ep.h; NULL: none */
	struct ivs_ep_proto proto; /* written only by proto/ */
};

/* A send needs the queues and the peers, a call to progress the rings that are polled each time. */
IVS_IN_LINE(struct ivs_ep, tx_cq, 1);
IVS_IN_LINE(struct ivs_ep, rx_cq, 1);
IVS_IN_LINE(struct ivs_ep, cntr, 1);
IVS_IN_LINE(struct ivs_ep, peers, 6);
IVS_IN_LINE(struct ivs_ep, peers_size, 6);
IVS_IN_LINE(struct ivs_ep, hot, 7);
IVS_IN_LINE(struct ivs_ep, hot_count, 8);
IVS_IN_LINE(struct ivs_ep, ticks, 8);
IVS_IN_LINE(struct ivs_ep, me, 8);

enum { IVS_CNTR_SEND, IVS_CNTR_RECV, IVS_CNTR_READ, IVS_CNTR_WRITE };

#endif /* IVS_EP_H */
