/* Peers: finds, connects, watches and ends them. */
#include <unistd.h>

#include "base/table.h"
#include "base/times.h"
#include "proto/proto.h"
#include "remote/core.h"
#include "remote/knock.h"
#include "remote/passthrough.h"
#include "ring/ring.h"

static struct ivs_peer *new_peer(struct ivs_ep *ep, const struct ivs_addr *addr, uint32_t slot, uint32_t epoch)
{
	struct ivs_peer *p;

	if (posix_memalign((void **) &p, 64, sizeof(*p)))
		return NULL;
	memset(p, 0, sizeof(*p));
	p->ep = ep;
	p->addr = *addr;
	p->slot = slot;
	p->epoch = epoch;
	ivs_ring_init(&p->ring, &ep->home, slot, epoch);
	p->piece = ep->domain->region ? ep->domain->region->geo.bounce_bytes : IVS_BOUNCE;
	p->fi_addr = FI_ADDR_NOTAVAIL;
	ivs_core_peer_init(&p->core);
	p->proto.held = &p->proto.held_core;
	p->proto.ctl_tail = &p->proto.ctl_head;
	ivs_list_init(&p->proto.sending);
	ivs_list_init(&p->proto.waiting);
	ivs_list_init(&p->proto.streams);
	ivs_list_init(&p->active);
	ivs_list_add(&ep->peers_all, &p->all);
	return p;
}

/* Returns the AV's first entry for a slot, or FI_ADDR_NOTAVAIL. */
static fi_addr_t find_slot_addr(struct ivs_ep *ep, uint32_t slot, uint32_t epoch)
{
	const struct ivs_av *av = ep->av;
	size_t i;

	if (!av || !ep->domain->region)
		return FI_ADDR_NOTAVAIL;
	for (i = 0; i < av->count; i++) {
		const struct ivs_addr *a = &av->addr[i];

		if (av->used[i] && a->kind == IVS_ADDR_SLOT && a->slot == slot && a->epoch == epoch &&
		    a->id == ep->domain->region->id)
			return i;
	}
	return FI_ADDR_NOTAVAIL;
}

/* Finds out whether the peer is a neighbour, whose memory this process can reach. */
static void locate(struct ivs_peer *p)
{
	if (ivs_slot_neighbour(p->ep->domain->region, p->slot, p->epoch, &p->alive) && ivs_param.cma)
		p->proto.pid = p->alive.pid;
	p->proto.self = p->proto.pid == getpid();
}

struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch)
{
	struct ivs_peer *p = ep->by_slot[slot];
	struct ivs_addr addr;

	if (p && p->epoch == epoch)
		return p;
	if (p) {
		/* The slot has another owner now. */
		ivs_peer_condemn(p);
		ep->by_slot[slot] = NULL;
	}
	ep->newcomers++;
	memset(&addr, 0, sizeof(addr));
	addr.kind = IVS_ADDR_SLOT;
	addr.slot = (uint16_t) slot;
	addr.epoch = epoch;
	addr.id = ep->domain->region->id;
	p = new_peer(ep, &addr, slot, epoch);
	if (!p)
		return NULL;
	p->proto.held = &ep->proto.held_by_slot[slot];
	p->fi_addr = find_slot_addr(ep, slot, epoch);
	ep->by_slot[slot] = p;
	/* Now, while it is alive: its ledger shows when it ends. */
	locate(p);
	return p;
}

struct ivs_peer *ivs_peer_by_addr(struct ivs_ep *ep, const struct ivs_addr *addr)
{
	struct ivs_list *pos;
	struct ivs_peer *p;
	size_t i;

	ivs_list_each(pos, &ep->peers_all) {
		p = ivs_entry(pos, struct ivs_peer, all);
		if (p->slot == IVS_NO_SLOT && p->channel != IVS_CHAN_DEAD && !memcmp(&p->addr, addr, sizeof(*addr)))
			return p;
	}
	p = new_peer(ep, addr, IVS_NO_SLOT, 0);
	ep->proto.core_peers += p != NULL;
	for (i = 0; p && ep->av && i < ep->av->count; i++)
		if (ep->av->used[i] && !memcmp(&ep->av->addr[i], addr, sizeof(*addr))) {
			p->fi_addr = i;
			break;
		}
	return p;
}

static bool here(const struct ivs_ep *ep, const struct ivs_addr *a)
{
	return ep->domain->region && a->kind == IVS_ADDR_SLOT && a->id == ep->domain->region->id &&
	       a->slot < ep->domain->region->geo.slots;
}

/* Receives what the peer sent before it left. Returns false if some of it has to wait. */
static bool drain(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	uint64_t begin;

	if (ep->by_slot[p->slot] == p && !p->ring.rx_ring)
		ivs_peer_attach(ep, p->slot);
	/* At most one ring full of messages: a peer that has not left might send forever. */
	for (begin = p->ring.rx_head; p->ring.rx_ring && p->ring.rx_head - begin <= p->ring.rx_mask &&
				      p->channel != IVS_CHAN_DEAD && ivs_ring_poll(ep, p);)
		;
	return p->channel == IVS_CHAN_DEAD || !ivs_ring_pending(&p->ring);
}

struct ivs_peer *ivs_peer_lookup(struct ivs_ep *ep, fi_addr_t addr, int *err)
{
	struct ivs_region *r = ep->domain->region;
	struct ivs_av *av = ep->av;
	struct ivs_peer *p, **peers;
	struct ivs_addr *a;
	uint64_t owner;
	uint32_t epoch;
	int slot;

	*err = 0;
	if (addr < ep->peers_size && ep->peers[addr])
		return ep->peers[addr];
	if (!av || addr >= av->count || !av->used[addr]) {
		*err = -FI_EINVAL;
		return NULL;
	}
	peers = ivs_table_grow(ep->peers, &ep->peers_size, addr, sizeof(struct ivs_peer *));
	if (!peers) {
		*err = -FI_ENOMEM;
		return NULL;
	}
	ep->peers = peers;
	a = &av->addr[addr];
	if (a->kind == IVS_ADDR_NAME) {
		slot = r ? ivs_slot_find(r, a->id, &epoch) : -1;
		if (slot < 0) {
			*err = -FI_EAGAIN;
			return NULL;
		}
		a->kind = IVS_ADDR_SLOT;
		a->slot = (uint16_t) slot;
		a->epoch = epoch;
		a->id = r->id;
	}
	if (here(ep, a)) {
		owner = __atomic_load_n(&r->slots[a->slot].owner, __ATOMIC_ACQUIRE);
		if (owner >> 2 == a->epoch) {
			p = ivs_peer_by_slot(ep, a->slot, a->epoch);
		} else {
			p = ep->by_slot[a->slot];
			if (p && p->epoch == a->epoch) {
				if (p->channel != IVS_CHAN_DEAD)
					ivs_peer_retire(p);
			} else {
				p = new_peer(ep, a, a->slot, a->epoch);
				if (p)
					p->channel = IVS_CHAN_DEAD;
			}
		}
	} else {
		p = ivs_peer_by_addr(ep, a);
	}
	if (!p) {
		*err = -FI_ENOMEM;
		return NULL;
	}
	if (p->fi_addr == FI_ADDR_NOTAVAIL)
		p->fi_addr = addr;
	ep->peers[addr] = p;
	return p;
}

int ivs_peer_connect(struct ivs_peer *p)
{
	struct ivs_region *r = p->ep->domain->region;
	uint64_t owner;
	int ret;

	if (p->slot == IVS_NO_SLOT) {
		ret = ivs_core_connect(p);
		if (!ret)
			p->channel = IVS_CHAN_CORE;
		else if (ret != -FI_EAGAIN)
			ivs_peer_condemn(p); /* ends also the receives that only this peer could have answered */
		return ret;
	}
	owner = __atomic_load_n(&r->slots[p->slot].owner, __ATOMIC_ACQUIRE);
	if (owner == NM_SLOT_OWNER(p->epoch, NM_SLOT_CLAIMED))
		return -FI_EAGAIN;
	if (owner != NM_SLOT_OWNER(p->epoch, NM_SLOT_LIVE)) {
		ivs_peer_retire(p);
		return -FI_EIO;
	}
	ret = ivs_ring_open(&p->ring);
	if (ret)
		return ret;
	p->channel = IVS_CHAN_RING;
	return 0;
}

/* Ends the posted receives that only this peer could have answered. */
static void fail_receives(struct ivs_peer *p, struct ivs_queue *q, bool tagged)
{
	struct ivs_rx **at = &q->head, *rx;

	while ((rx = *at)) {
		if (rx->peer != p) {
			at = &rx->next;
			continue;
		}
		*at = rx->next;
		if (!rx->next)
			q->tail = at;
		ivs_cq_error(p->ep->rx_cq, rx->context, FI_RECV | (tagged ? FI_TAGGED : FI_MSG), 0, rx->iov[0].iov_base,
			     0, rx->tag, 0, FI_EIO);
		ivs_cntr_fail(p->ep->cntr[IVS_CNTR_RECV]);
		ivs_rx_put(p->ep, rx);
	}
}

/* Ends all operations with a peer. */
static void end(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	struct ivs_list *pos, *tmp;
	struct ivs_ctl *c;

	p->channel = IVS_CHAN_DEAD;
	p->condemned = false;
	IVS_INFO(FI_LOG_EP_CTRL, "peer in slot %u is gone\n", p->slot);
	ivs_peer_unhot(p);
	ivs_list_each_safe(pos, tmp, &p->proto.sending)
		ivs_tx_complete(ep, ivs_entry(pos, struct ivs_tx, link), FI_EIO);
	ivs_list_each_safe(pos, tmp, &p->proto.waiting)
		ivs_tx_complete(ep, ivs_entry(pos, struct ivs_tx, link), FI_EIO);
	ivs_list_each_safe(pos, tmp, &p->proto.streams) {
		struct ivs_msg *msg = ivs_entry(pos, struct ivs_msg, stream);

		/* The core provider writes the receive's memory until it reports the end. */
		if (msg->fetch)
			continue;
		if (msg->rx) {
			ivs_rx_complete(ep, msg->rx, ivs_msg_tagged(msg), p, 0, msg->tag, false, 0, FI_EIO);
			msg->rx = NULL;
		}
		ivs_msg_free(ep, msg);
	}
	if (ep->rx_cq) {
		fail_receives(p, &ep->tagged, true);
		fail_receives(p, &ep->msg, false);
	}
	if (ep->passthrough)
		ivs_passthrough_dead(p);
	while ((c = p->proto.ctl_head)) {
		p->proto.ctl_head = c->next;
		free(c);
	}
	p->proto.ctl_tail = &p->proto.ctl_head;
	p->proto.ctl_count = 0;
	ivs_peer_deactivate(p);
	ivs_ring_close(&p->ring);
}

void ivs_peer_reap(struct ivs_peer *p)
{
	/* Messages that it sent before it left still count. */
	if (p->channel == IVS_CHAN_DEAD || drain(p))
		end(p);
}

void ivs_peer_free(struct ivs_peer *p)
{
	struct ivs_list *pos, *tmp;

	ivs_list_each_safe(pos, tmp, &p->proto.sending)
		ivs_tx_put(p->ep, ivs_entry(pos, struct ivs_tx, link));
	ivs_list_each_safe(pos, tmp, &p->proto.waiting)
		ivs_tx_put(p->ep, ivs_entry(pos, struct ivs_tx, link));
	ivs_list_each_safe(pos, tmp, &p->proto.streams)
		ivs_msg_free(p->ep, ivs_entry(pos, struct ivs_msg, stream));
	while (p->proto.ctl_head) {
		struct ivs_ctl *c = p->proto.ctl_head;

		p->proto.ctl_head = c->next;
		free(c);
	}
	ivs_ring_forget(&p->ring);
	/* In a child of fork, the ledger is not mapped at this address. */
	if (!ivs_forked(p->ep->domain->pid))
		ivs_slot_forget(&p->alive);
	ivs_knock_end(p);
	ivs_peer_deactivate(p);
	ivs_list_del(&p->all);
	free(p);
}

void ivs_peer_inserted(struct ivs_ep *ep, fi_addr_t addr)
{
	const struct ivs_addr *a = &ep->av->addr[addr];
	struct ivs_peer *p;

	if (!here(ep, a)) {
		struct ivs_list *pos;

		ivs_list_each(pos, &ep->peers_all) {
			p = ivs_entry(pos, struct ivs_peer, all);
			if (p->slot == IVS_NO_SLOT && p->fi_addr == FI_ADDR_NOTAVAIL &&
			    !memcmp(&p->addr, a, sizeof(*a)))
				p->fi_addr = addr;
		}
		if (ep->passthrough)
			ivs_passthrough_inserted(ep, addr);
		return;
	}
	/* A peer that has already sent to this rank gets its address now. */
	p = ep->by_slot ? ep->by_slot[a->slot] : NULL;
	if (p && p->epoch == a->epoch && p->fi_addr == FI_ADDR_NOTAVAIL)
		p->fi_addr = addr;
}

void ivs_peer_removed(struct ivs_ep *ep, fi_addr_t addr)
{
	struct ivs_peer *p;

	if (ep->passthrough)
		ivs_passthrough_removed(ep, addr);
	if (addr >= ep->peers_size)
		return;
	p = ep->peers[addr];
	ep->peers[addr] = NULL;
	if (p && p->fi_addr == addr) {
		p->fi_addr = FI_ADDR_NOTAVAIL;
		if (p->slot != IVS_NO_SLOT)
			p->fi_addr = find_slot_addr(ep, p->slot, p->epoch);
	}
}

/* Returns true if an operation waits for this peer. */
static bool owes(const struct ivs_peer *p)
{
	const struct ivs_rx *rx;

	if (!ivs_list_empty(&p->proto.sending) || !ivs_list_empty(&p->proto.waiting) ||
	    !ivs_list_empty(&p->proto.streams) || p->proto.ctl_head ||
	    (p->ring.tx_ring && p->ring.tx_head != p->ring.tx_tail))
		return true;
	for (rx = p->ep->tagged.head; rx; rx = rx->next)
		if (rx->peer == p)
			return true;
	for (rx = p->ep->msg.head; rx; rx = rx->next)
		if (rx->peer == p)
			return true;
	return false;
}

/* Marks the peers that a receive, or a message that waits for one, refers to. */
static void mark_used(struct ivs_ep *ep)
{
	struct ivs_list *lists[] = { &ep->ux_tagged, &ep->ux_msg, &ep->claimed }, *pos;
	struct ivs_rx *rx;
	size_t i;

	for (rx = ep->tagged.head; rx; rx = rx->next)
		if (rx->peer)
			rx->peer->proto.marked = true;
	for (rx = ep->msg.head; rx; rx = rx->next)
		if (rx->peer)
			rx->peer->proto.marked = true;
	for (i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		ivs_list_each(pos, lists[i])
			ivs_entry(pos, struct ivs_msg, link)->peer->proto.marked = true;
	for (i = 0; i < ep->peers_size; i++)
		if (ep->peers[i])
			ep->peers[i]->proto.marked = true;
}

/*
 * Frees earlier owners of slots that nothing refers to. Another VM can claim at any time that a slot has a new owner.
 */
static void free_gone(struct ivs_ep *ep)
{
	struct ivs_list *pos, *tmp;
	bool any = false;

	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		p->proto.marked = p->channel != IVS_CHAN_DEAD || p->slot == IVS_NO_SLOT || p->condemned ||
				  p->fi_addr != FI_ADDR_NOTAVAIL || ep->by_slot[p->slot] == p;
		any = any || !p->proto.marked;
	}
	if (!any)
		return;
	mark_used(ep);
	ivs_list_each_safe(pos, tmp, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		if (!p->proto.marked)
			ivs_peer_free(p);
	}
}

void ivs_peer_check(struct ivs_ep *ep)
{
	uint64_t now = ivs_now_ms();
	struct ivs_list *pos, *tmp;
	bool ask;

	if (now - ep->checked_ms < IVS_CHECK_MS)
		return;
	ep->checked_ms = now;
	/* Peers on other hosts show no heartbeat. */
	ask = now - ep->proto.asked_ms >= ivs_param.timeout / 2;
	if (ask)
		ep->proto.asked_ms = now;
	ep->newcomers = 0;
	free_gone(ep);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the analyzer does not follow lists */
	ivs_list_each_safe(pos, tmp, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		if (p->channel == IVS_CHAN_DEAD)
			continue;
		if (p->slot == IVS_NO_SLOT) {
			if (p->channel == IVS_CHAN_CORE &&
			    (((p->core.knock >= 0 || (ask && owes(p))) && ivs_knock(p)) || !ivs_core_check(p)))
				end(p);
			continue;
		}
		if (!owes(p)) {
			p->alive.seen = 0;
			continue;
		}
		if (ivs_slot_alive(ep->domain->region, p->slot, p->epoch, &p->alive))
			continue;
		/* Messages that do not fit have to wait, but only if the program reads completions. */
		if (drain(p) || ivs_cq_count(ep->rx_cq) < ep->rx_cq->size)
			end(p);
	}
}
