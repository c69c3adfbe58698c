/* Peers: the ranks behind endpoints, and those that send to this rank. They replace fabric/proto/peer.c. */
#include <stdlib.h>
#include <string.h>

#include "abi/log.h"
#include "abi/uct.h"
#include "base/times.h"
#include "peer.h"
#include "proto/proto.h"
#include "region/region.h"
#include "ring/ring.h"

/* Returns whether UCX has waiting requests for this peer. */
static bool waits(const struct ivu_peer *peer)
{
	return !ivs_list_empty(&peer->pending) || !ivs_list_empty(&peer->flushes);
}

void ivu_peer_gate(struct ivu_peer *peer)
{
	peer->blocked = peer->ivs.channel != IVS_CHAN_RING || !ivs_list_empty(&peer->pending);
}

void ivu_peer_condemn(struct ivu_peer *peer)
{
	ivs_peer_condemn(&peer->ivs);
	ivu_peer_gate(peer);
}

static struct ivu_peer *new_peer(struct ivs_ep *ep, uint32_t slot, uint32_t epoch)
{
	struct ivu_peer *peer;
	void *memory;

	if (posix_memalign(&memory, 64, sizeof(*peer)))
		return NULL;
	peer = memset(memory, 0, sizeof(*peer));
	peer->blocked = true;
	peer->ivs.ep = ep;
	peer->ivs.slot = slot;
	peer->ivs.epoch = epoch;
	ivs_ring_init(&peer->ivs.ring, &ep->home, slot, epoch);
	ivu_puts_begin(peer);
	ivs_list_init(&peer->eps);
	ivs_list_init(&peer->pending);
	ivs_list_init(&peer->flushes);
	ivs_list_init(&peer->ivs.active);
	ivs_list_add(&ep->peers_all, &peer->ivs.all);
	return peer;
}

void ivu_peer_free(struct ivu_peer *peer)
{
	struct ivs_list *pos, *tmp;

	ivs_peer_deactivate(&peer->ivs);
	ivs_list_each_safe(pos, tmp, &peer->flushes)
		free(ivs_entry(pos, struct ivu_flush, link));
	ivs_ring_forget(&peer->ivs.ring);
	/* In a child of fork the parent's ledger is replaced by other memory. */
	if (!ivu_alien(ivu_iface_of(peer->ivs.ep)))
		ivs_slot_forget(&peer->ivs.alive);
	ivs_list_del(&peer->ivs.all);
	free(peer);
}

struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch)
{
	struct ivs_peer *p = ep->by_slot[slot];
	struct ivu_peer *peer;
	uint64_t owner;

	if (p && p->epoch == epoch)
		return p;
	owner = __atomic_load_n(&ep->domain->region->slots[slot].owner, __ATOMIC_ACQUIRE);
	if ((uint32_t) (owner >> 2) != epoch) {
		struct ivs_list *pos;

		/* An endpoint to a rank that has left. */
		ivs_list_each(pos, &ep->peers_all) {
			p = ivs_entry(pos, struct ivs_peer, all);
			if (p->slot == slot && p->epoch == epoch)
				return p;
		}
		peer = new_peer(ep, slot, epoch);
		if (!peer)
			return NULL;
		peer->ivs.channel = IVS_CHAN_DEAD;
		return &peer->ivs;
	}
	if (p) {
		/* The slot now has another owner. */
		ivu_peer_condemn(ivu_peer_of(p));
		ep->by_slot[slot] = NULL;
	}
	ep->newcomers++;
	peer = new_peer(ep, slot, epoch);
	if (!peer)
		return NULL;
	ep->by_slot[slot] = &peer->ivs;
	/* Done now, while the peer lives: its ledger shows when it has ended. */
	ivs_slot_neighbour(ep->domain->region, slot, epoch, &peer->ivs.alive);
	return &peer->ivs;
}

ivu_status ivu_peer_connect(struct ivu_peer *peer)
{
	struct ivs_peer *p = &peer->ivs;
	uint64_t owner;

	if (p->channel == IVS_CHAN_DEAD)
		return IVU_ERR_CONNECTION_RESET;
	owner = __atomic_load_n(&p->ep->domain->region->slots[p->slot].owner, __ATOMIC_ACQUIRE);
	if (owner != NM_SLOT_OWNER(p->epoch, NM_SLOT_LIVE)) {
		ivu_peer_condemn(peer);
		return IVU_ERR_CONNECTION_RESET;
	}
	/* Room may be free later, because rings of peers that are gone are reused. */
	if (ivs_ring_open(&p->ring))
		return IVU_ERR_NO_RESOURCE;
	p->channel = IVS_CHAN_RING;
	ivu_peer_gate(peer);
	return IVU_OK;
}

/* Reads how much of the ring the receiver has read, as far as the value is plausible. */
static void look(struct ivs_peer *p)
{
	if (p->channel == IVS_CHAN_RING)
		ivs_ring_reap(&p->ring, 0);
}

bool ivu_peer_put_done(struct ivu_peer *peer)
{
	if (!peer->put)
		return true;
	look(&peer->ivs);
	if (peer->ivs.channel == IVS_CHAN_RING && (int64_t) (peer->ivs.ring.tx_tail - peer->put_mark) < 0)
		return false;
	peer->put = false;
	ivu_iface_of(peer->ivs.ep)->puts--;
	return true;
}

/* Completes a completion, or decrements its count. */
static void complete(struct ivu_completion *comp, ivu_status status)
{
	if (status != IVU_OK && comp->status == IVU_OK)
		comp->status = status;
	if (!--comp->count)
		comp->func(comp);
}

/* Completes the flushes whose puts are complete; status: the result of all if all is set. */
static void end_flushes(struct ivu_peer *peer, bool all, ivu_status status)
{
	struct ivs_list *pos, *tmp;

	ivs_list_each_safe(pos, tmp, &peer->flushes) {
		struct ivu_flush *f = ivs_entry(pos, struct ivu_flush, link);
		struct ivu_completion *comp = f->comp;

		if (!all && (int64_t) (peer->ivs.ring.tx_tail - f->mark) < 0)
			break;
		ivs_list_del(&f->link);
		free(f);
		complete(comp, status);
	}
}

void ivs_peer_pump(struct ivs_peer *p)
{
	struct ivu_peer *peer = ivu_peer_of(p);
	struct ivs_list *pos;

	ivu_puts_begin(peer);
	look(p);
	ivu_peer_put_done(peer);
	end_flushes(peer, false, IVU_OK);
	while (!ivs_list_empty(&peer->pending)) {
		struct ivu_waiting *w = ivs_entry(peer->pending.next, struct ivu_waiting, link);
		struct ivu_pending *req = ivs_entry((char *) w, struct ivu_pending, priv);
		uint64_t mark = peer->put_mark;
		ivu_status status;

		/*
		 * The request may be freed by its callback. If it is not complete it becomes the first again. A
		 * fragment of a long message has been served: their order does not matter, because each is written to
		 * memory of its own.
		 */
		ivs_list_del(&w->link);
		peer->blocked = p->channel != IVS_CHAN_RING;
		status = req->func(req);
		if (status == IVU_OK) {
			ivu_peer_gate(peer);
			continue;
		}
		pos = &peer->pending;
		if (status != IVU_INPROGRESS || peer->put_mark == mark || !ivu_puts_in_turns(peer))
			pos = pos->next;
		ivs_list_add(pos, &w->link);
		ivu_peer_gate(peer);
		if (status != IVU_INPROGRESS)
			break;
	}
	if (!waits(peer) && !p->condemned)
		ivs_peer_deactivate(p);
}

void ivu_ep_fail(struct ivu_ep *e)
{
	if (e->failed)
		return;
	e->failed = true;
	ivu_uct.handle_ep_err(e->iface, e, IVU_ERR_ENDPOINT_TIMEOUT);
}

void ivs_peer_reap(struct ivs_peer *p)
{
	struct ivu_peer *peer = ivu_peer_of(p);
	struct ivs_list *pos, *tmp;

	p->channel = IVS_CHAN_DEAD;
	p->condemned = false;
	ivu_log(IVU_LOG_INFO, "the rank in slot %u is gone", p->slot);
	ivs_peer_unhot(p);
	ivs_ring_close(&p->ring);
	ivu_peer_gate(peer);
	if (peer->put) {
		peer->put = false;
		ivu_iface_of(p->ep)->puts--;
	}
	end_flushes(peer, true, IVU_ERR_ENDPOINT_TIMEOUT);
	/* UCX destroys endpoints later, not in its handler. */
	ivs_list_each_safe(pos, tmp, &peer->eps)
		ivu_ep_fail(ivs_entry(pos, struct ivu_ep, link));
}

/* Returns whether the peer has not read something that was sent to it. Only then its end matters. */
static bool owes(struct ivu_peer *peer)
{
	look(&peer->ivs);
	return waits(peer) || peer->put ||
	       (peer->ivs.channel == IVS_CHAN_RING && peer->ivs.ring.tx_tail != peer->ivs.ring.tx_head);
}

/* Messages that it sent before it left are still received. */
static void drain(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	uint64_t begin;

	if (ep->by_slot[p->slot] == p && !p->ring.rx_ring)
		ivs_peer_attach(ep, p->slot);
	for (begin = p->ring.rx_head; p->ring.rx_ring && p->ring.rx_head - begin <= p->ring.rx_mask &&
				      p->channel != IVS_CHAN_DEAD && ivs_ring_poll(ep, p);)
		;
}

bool ivu_peer_alive(struct ivu_peer *peer)
{
	struct ivs_peer *p = &peer->ivs;

	if (p->channel == IVS_CHAN_DEAD)
		return false;
	if (ivs_slot_alive(p->ep->domain->region, p->slot, p->epoch, &p->alive))
		return true;
	drain(p);
	ivu_peer_condemn(peer);
	return false;
}

void ivs_peer_check(struct ivs_ep *ep)
{
	uint64_t now = ivs_now_ms();
	struct ivs_list *pos, *tmp;

	if (now - ep->checked_ms < IVS_CHECK_MS)
		return;
	ep->checked_ms = now;
	ep->newcomers = 0;
	ivs_list_each_safe(pos, tmp, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);
		struct ivu_peer *peer = ivu_peer_of(p);

		if (p->channel == IVS_CHAN_DEAD) {
			/* No reference to it remains. */
			if (!peer->ep_count && !p->condemned && !peer->handling && ep->by_slot[p->slot] != p)
				ivu_peer_free(peer);
		} else if (owes(peer)) {
			ivu_peer_alive(peer);
		} else {
			p->alive.seen = 0;
		}
	}
}
