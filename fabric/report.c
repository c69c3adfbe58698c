/* What an endpoint's log says at its end: which channels were in use, and how much. */
#include "inner.h"
#include "ivshmem.h"
#include "through.h"

struct use {
	unsigned int	ranks;
	uint64_t	sent;		/* lines of 64 bytes, or messages of the inner provider */
};

void ivs_report_use(struct ivs_ep *ep)
{
	struct use near = { 0 }, region = { 0 }, inner = { 0 }, *u;
	struct ivs_list *pos;
	uint64_t direct = 0;

	ivs_through_report(ep);
	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		direct += p->direct;
		if (p->inner_sent || p->inner_seen || p->through_sent) {
			inner.ranks++;
			inner.sent += p->inner_sent + p->through_sent;
		} else if (p->tx_head || p->rx_head) {
			u = p->pid ? &near : &region;
			u->ranks++;
			u->sent += p->tx_head;
		}
	}
	IVS_INFO(FI_LOG_EP_CTRL, "channels used: %u ranks of this VM, %ju lines, %ju direct copies; "
		 "%u ranks of other VMs, %ju lines; %u ranks over the inner provider, %ju messages\n",
		 near.ranks, (uintmax_t) near.sent, (uintmax_t) direct,
		 region.ranks, (uintmax_t) region.sent, inner.ranks, (uintmax_t) inner.sent);
}
