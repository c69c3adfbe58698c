/* Endpoints: UCX's sends to one peer. */
#include <stdlib.h>
#include <string.h>

#include "ep.h"
#include "memory.h"
#include "peer.h"
#include "proto/proto.h"
#include "region/region.h"
#include "ring/bounce.h"
#include "ring/eager_send.h"
#include "ring/nontemporal.h"

/* Checks whether this endpoint may now send that many lines in the ring of its peer. Connects it if necessary. */
static ivu_status __attribute__((noinline)) ready(struct ivu_ep *e, uint32_t lines)
{
	struct ivu_peer *peer = e->peer;
	struct ivs_peer *p = &peer->ivs;
	ivu_status status;

	if (ivu_alien(e->iface))
		return IVU_ERR_CONNECTION_RESET;
	if (p->channel != IVS_CHAN_RING) {
		status = ivu_peer_connect(peer);
		if (status != IVU_OK)
			return status;
	}
	/* Waiting requests are sent first. */
	if (peer->blocked)
		return IVU_ERR_NO_RESOURCE;
	return ivs_ring_room(&p->ring, lines) ? IVU_OK : IVU_ERR_NO_RESOURCE;
}

/* Like ready(), with a fast path for a connected peer that has room. */
static inline ivu_status check(struct ivu_ep *e, uint32_t lines)
{
	const struct ivs_peer *p = &e->peer->ivs;

	if (likely(!e->peer->blocked && !ivu_alien(e->iface) &&
		   p->ring.tx_head + lines - p->ring.tx_tail <= p->ring.tx_mask + 1))
		return IVU_OK;
	return ready(e, lines);
}

/* Sends an active message of up to IVU_INLINE_MAX bytes, for which the ring has room. */
static void send_inline(struct ivs_peer *p, uint8_t id, const uint8_t *data, size_t len)
{
	struct nm_line *l = ivs_line_at(p->ring.tx_ring, p->ring.tx_head, p->ring.tx_mask);
	size_t head = len < 8 ? len : 8, more = len - head;
	uint32_t lines = ivs_lines_for(more);
	uint64_t tag = 0;

	memcpy(&tag, data, head);
	data += head;
	if (more > NM_LINE_FIRST_BYTES)
		ivs_eager_send_more(&p->ring, data + NM_LINE_FIRST_BYTES, more - NM_LINE_FIRST_BYTES);
	l->tag = tag;
	ivs_copy_small(l->payload, data, more < NM_LINE_FIRST_BYTES ? more : NM_LINE_FIRST_BYTES);
	ivs_ring_publish(&p->ring, l, lines, IVU_OP_AM | id, (uint8_t) ((8 - head) << IVU_MISSING_SHIFT), more);
}

/* Copies all data in iov to dst, which has most bytes. Returns its length; above most: it is too long. */
static size_t gather(uint8_t *dst, size_t most, const struct ivu_iov *iov, size_t count)
{
	size_t len = 0, i, k;

	for (i = 0; i < count; i++) {
		if (!iov[i].length)
			continue;
		if (iov[i].count > (most - len) / iov[i].length)
			return most + 1;
		for (k = 0; k < iov[i].count; k++) {
			memcpy(dst + len, (const uint8_t *) iov[i].buffer + k * iov[i].stride, iov[i].length);
			len += iov[i].length;
		}
	}
	return len;
}

/* Copies data to a place in a bounce buffer. Returns the flags that state how. */
static uint8_t copy_to_bounce(struct ivu_iface *i, struct ivs_peer *p, uint32_t bounce, uint8_t *to, const void *data,
			      size_t len)
{
	if (len >= IVS_NT_MIN)
		return ivs_nt_copy(&p->ring.nt, p->ring.tx_ctl, to, data, len, ivs_bounce_fresh(&i->ep.home, bounce));
	ivs_copy(to, data, len);
	return 0;
}

/*
 * Decides whether UCX packs the next message directly into its bounce buffer, which saves a copy. Its length is not
 * known, and is assumed to be that of the last one. The copy of a short one costs little. Messages that are copied
 * non-temporally, or timed, keep the transport's copy, because UCX's own is neither.
 */
static inline bool packs_there(struct ivu_peer *peer, uint8_t id)
{
	return id == IVU_AM_WHOLE && peer->packed >= IVS_NT_MIN && ivs_nt_plain(&peer->ivs.ring.nt);
}

/* Sends a message whose data is in a bounce buffer, from begin on, with a header in the ring. */
static void send_bounce(struct ivs_peer *p, uint8_t op, uint8_t how, uint32_t bounce, uint32_t begin, size_t len,
			const void *header, size_t header_len)
{
	struct nm_line *l = ivs_line_at(p->ring.tx_ring, p->ring.tx_head, p->ring.tx_mask);
	/* As struct ivu_packed and struct ivs_bounce. */
	struct {
		uint32_t begin, len;
		uint8_t header[IVU_HEADER_MAX];
	} all = { .begin = begin, .len = (uint32_t) len };
	size_t bytes = 2 * sizeof(uint32_t) + header_len;
	uint32_t lines = ivs_lines_for(bytes);

	if (header_len)
		memcpy(all.header, header, header_len);
	/* The buffer is returned with the message's last line. */
	ivs_ring_hold(&p->ring, lines, bounce);
	if (bytes > NM_LINE_FIRST_BYTES)
		ivs_eager_send_more(&p->ring, (const uint8_t *) &all + NM_LINE_FIRST_BYTES,
				    bytes - NM_LINE_FIRST_BYTES);
	l->tag = 0;
	ivs_copy_small(l->payload, &all, bytes < NM_LINE_FIRST_BYTES ? bytes : NM_LINE_FIRST_BYTES);
	ivs_ring_publish(&p->ring, l, lines, op, IVS_F_BOUNCE | how, bytes);
}

static ssize_t am_bcopy(struct ivu_ep *e, uint8_t id, ivu_pack pack, void *arg, unsigned int flags)
{
	struct ivu_iface *i = e->iface;
	struct ivu_peer *peer = e->peer;
	struct ivs_peer *p = &peer->ivs;
	/* The length is known when it is packed. */
	ivu_status status = check(e, ivs_lines_for(IVS_INLINE_MAX));
	/* Its header is sent in the ring, as with am_zcopy(), so that the receiver's UCX gets the rest in place. */
	size_t head = id == IVU_AM_WHOLE ? IVU_WHOLE_HEADER : 0, len;
	uint8_t *packed = i->packed, *to, how = 0;
	uint32_t bounce, at;

	(void) flags;
	if (unlikely(id >= IVU_AM_IDS))
		return IVU_ERR_INVALID_PARAM;
	if (unlikely(status != IVU_OK))
		return status;
	at = ivs_ring_seek(&i->ep.home, ivu_am_max(i->domain.region), ivs_in_row(&p->ring));
	if (unlikely(at == IVS_NO_BOUNCE))
		return IVU_ERR_NO_RESOURCE;
	to = i->ep.home.area + at;
	if (packs_there(peer, id))
		packed = to - head;
	len = pack(packed, arg);
	if (head)
		peer->packed = (uint32_t) len;
	if (len <= IVU_INLINE_MAX) {
		send_inline(p, id, packed, len);
		return (ssize_t) len;
	}
	bounce = ivs_bounce_pack(&i->ep.home, at, len - head);
	if (packed == i->packed)
		how = copy_to_bounce(i, p, bounce, to, packed + head, len - head);
	send_bounce(p, IVU_OP_AM | id, how, bounce, at / NM_LAYOUT_LINE, len - head, packed, head);
	return (ssize_t) len;
}

/*
 * Sends a short message whose payload does not fit into the ring. UCX makes no request for it, as it does for one of
 * am_zcopy().
 */
static ivu_status __attribute__((noinline)) am_short_long(struct ivu_ep *e, uint8_t id, uint64_t header,
							  const void *payload, size_t length)
{
	struct ivu_iface *i = e->iface;
	struct ivs_peer *p = &e->peer->ivs;
	uint32_t bounce, at;
	ivu_status status;
	uint8_t how;

	if (unlikely(length > ivu_am_max(i->domain.region) - sizeof(header) || id >= IVU_AM_IDS))
		return IVU_ERR_INVALID_PARAM;
	status = check(e, ivs_lines_for(sizeof(struct ivu_packed) + sizeof(header)));
	if (unlikely(status != IVU_OK))
		return status;
	at = ivs_ring_seek(&i->ep.home, length, ivs_in_row(&p->ring));
	if (unlikely(at == IVS_NO_BOUNCE))
		return IVU_ERR_NO_RESOURCE;
	bounce = ivs_bounce_pack(&i->ep.home, at, length);
	how = copy_to_bounce(i, p, bounce, i->ep.home.area + at, payload, length);
	send_bounce(p, IVU_OP_AM | id, how, bounce, at / NM_LAYOUT_LINE, length, &header, sizeof(header));
	return IVU_OK;
}

static ivu_status am_short(struct ivu_ep *e, uint8_t id, uint64_t header, const void *payload, unsigned int length)
{
	uint32_t lines = ivs_lines_for(length);
	ivu_status status;

	if (unlikely(length > IVS_INLINE_MAX))
		return am_short_long(e, id, header, payload, length);
	if (unlikely(id >= IVU_AM_IDS))
		return IVU_ERR_INVALID_PARAM;
	status = check(e, lines);
	if (likely(status == IVU_OK))
		ivs_eager_send_lines(&e->peer->ivs.ring, lines, IVU_OP_AM | id, header, NULL, payload, length);
	return status;
}

/*
 * Writes this worker's own memory at once: up to UCX 1.15 UCX considers a write complete when it is accepted, and
 * reports that by the transport self, which would be faster than a message here.
 */
static ivu_status put_own(struct ivu_iface *i, const struct iovec *pieces, size_t count, uint64_t remote,
			  uintptr_t rkey)
{
	struct ivu_memory *m = ivs_entry(i->shown.base.md, struct ivu_memory, md);
	size_t n;

	for (n = 0; n < count; remote += pieces[n++].iov_len)
		if (pieces[n].iov_len && !ivu_memory_put(m, rkey, remote, pieces[n].iov_base, pieces[n].iov_len))
			return IVU_ERR_INVALID_PARAM;
	return IVU_OK;
}

/*
 * Makes the data of iov the payload of a message, in at most IVU_IOV_MAX pieces. Data with more pieces, or apart, is
 * gathered first. false: it is longer than most, which is at most ivu_put_max().
 */
static bool collect(struct ivu_iface *i, const struct ivu_iov *iov, size_t count, size_t most, struct iovec *pieces,
		    struct ivs_packet *pkt)
{
	size_t n;
	bool simple = count <= IVU_IOV_MAX;

	for (n = 0; simple && n < count; n++) {
		simple = iov[n].count <= 1;
		pieces[n].iov_base = iov[n].buffer;
		pieces[n].iov_len = iov[n].count ? iov[n].length : 0;
		pkt->len += pieces[n].iov_len;
	}
	if (unlikely(!simple)) {
		pkt->len = gather(i->packed, most, iov, count);
		pieces[0].iov_base = i->packed;
		pieces[0].iov_len = pkt->len;
		count = 1;
	}
	pkt->iov = pieces;
	pkt->count = count;
	return pkt->len <= most;
}

/*
 * Sends a message of which UCX has packed only the header: its data is copied directly from the user's memory to the
 * bounce buffer, before which the receiver may put the header, which is in the ring. The send is complete when this
 * returns.
 */
static ivu_status am_zcopy(struct ivu_ep *e, uint8_t id, const void *header, unsigned int header_length,
			   const struct ivu_iov *iov, size_t count, unsigned int flags, struct ivu_completion *comp)
{
	struct ivu_iface *i = e->iface;
	struct ivs_peer *p = &e->peer->ivs;
	struct ivs_packet pkt = { .len = 0 };
	struct iovec pieces[IVU_IOV_MAX];
	size_t len, n, most = ivu_am_max(i->domain.region);
	uint8_t data[IVU_INLINE_MAX], *to, how = 0;
	uint32_t bounce, at;
	ivu_status status;

	(void) flags;
	(void) comp;
	if (id >= IVU_AM_IDS || header_length > IVU_HEADER_MAX ||
	    !collect(i, iov, count, most - header_length, pieces, &pkt))
		return IVU_ERR_INVALID_PARAM;
	status = check(e, ivs_lines_for(IVS_INLINE_MAX));
	if (unlikely(status != IVU_OK))
		return status;
	if (pkt.len + header_length <= sizeof(data)) {
		memcpy(data, header, header_length);
		len = gather(data + header_length, sizeof(data) - header_length, iov, count);
		send_inline(p, id, data, header_length + len);
		return IVU_OK;
	}
	at = ivs_ring_seek(&i->ep.home, pkt.len, ivs_in_row(&p->ring));
	if (unlikely(at == IVS_NO_BOUNCE))
		return IVU_ERR_NO_RESOURCE;
	bounce = ivs_bounce_pack(&i->ep.home, at, pkt.len);
	to = i->ep.home.area + at;
	for (n = 0; n < pkt.count; to += pieces[n++].iov_len)
		how = copy_to_bounce(i, p, bounce, to, pieces[n].iov_base, pieces[n].iov_len);
	/* Timed data is one piece. */
	send_bounce(p, IVU_OP_AM | id, pkt.count == 1 ? how : 0, bounce, at / NM_LAYOUT_LINE, pkt.len, header,
		    header_length);
	return IVU_OK;
}

static ivu_status am_short_iov(struct ivu_ep *e, uint8_t id, const struct ivu_iov *iov, size_t count)
{
	uint8_t data[IVU_INLINE_MAX];
	size_t len = gather(data, sizeof(data), iov, count);
	ivu_status status;

	/* The first piece is UCX's own header. */
	if (len > sizeof(data))
		return iov->count == 1 && iov->length <= IVU_HEADER_MAX
			       ? am_zcopy(e, id, iov->buffer, (unsigned int) iov->length, iov + 1, count - 1, 0, NULL)
			       : am_zcopy(e, id, NULL, 0, iov, count, 0, NULL);
	if (id >= IVU_AM_IDS)
		return IVU_ERR_INVALID_PARAM;
	status = check(e, ivs_lines_for(len < 8 ? 0 : len - 8));
	if (likely(status == IVU_OK))
		send_inline(&e->peer->ivs, id, data, len);
	return status;
}

/* Decides whether that many fragments of a long message may be written now. If not they wait in peer->pending. */
static bool put_turn(struct ivu_peer *peer, uint32_t count)
{
	if (peer->puts_tick != peer->ivs.ep->ticks)
		ivu_puts_begin(peer);
	if (!ivu_puts_in_turns(peer))
		return true;
	if (peer->puts_left < count)
		return false;
	peer->puts_left -= count;
	return true;
}

/*
 * Sends the data in pkt, following put, in fragments of a bounce buffer each, for whose messages the ring has room.
 * false: no buffers.
 */
static bool send_pieces(struct ivu_iface *i, struct ivs_peer *p, struct ivu_put *put, const struct ivs_packet *pkt)
{
	size_t most = i->domain.region->geo.bounce_bytes, at = 0, len;
	uint32_t bounce = ivs_ring_bounce(&i->ep.home, pkt->len), next;
	uint8_t how = 0;

	if (unlikely(bounce == IVS_NO_BOUNCE))
		return false;
	for (; at < pkt->len; at += len, put->addr += len, bounce = next) {
		len = pkt->len - at < most ? pkt->len - at : most;
		next = at + len < pkt->len ? ivs_bounce_split(&i->ep.home, bounce, len) : IVS_NO_BOUNCE;
		if (pkt->count == 1)
			how = copy_to_bounce(i, p, bounce, ivs_bounce_at(&i->ep.home, bounce),
					     (const uint8_t *) pkt->iov->iov_base + at, len);
		else
			ivs_iov_gather(ivs_bounce_at(&i->ep.home, bounce), len, pkt->iov, pkt->count, at);
		send_bounce(p, IVU_OP_PUT, how, bounce, bounce, len, put, sizeof(*put));
	}
	return true;
}

/* Writes a peer's memory, by messages that the peer carries out. */
static ivu_status put_zcopy(struct ivu_ep *e, const struct ivu_iov *iov, size_t count, uint64_t remote, uintptr_t rkey,
			    struct ivu_completion *comp)
{
	struct ivu_peer *peer = e->peer;
	struct ivu_put put = { .addr = remote, .key = rkey };
	struct ivs_packet pkt = { .op = IVU_OP_PUT, .fixed = &put, .fixed_len = sizeof(put) };
	const struct ivs_region *r = e->iface->domain.region;
	struct iovec pieces[IVU_IOV_MAX];
	ivu_status status;
	uint32_t n;

	(void) comp;
	if (!collect(e->iface, iov, count, ivu_put_max(r), pieces, &pkt))
		return IVU_ERR_INVALID_PARAM;
	if (!pkt.len)
		return IVU_OK;
	if (unlikely(peer->ivs.slot == e->iface->ep.home.slot && peer->ivs.epoch == e->iface->ep.home.epoch))
		return put_own(e->iface, pieces, pkt.count, remote, rkey);
	n = (uint32_t) ((pkt.len + r->geo.bounce_bytes - 1) / r->geo.bounce_bytes);
	status = check(e, n * ivs_lines_for(sizeof(struct ivs_bounce) + sizeof(put)));
	if (status != IVU_OK)
		return status;
	if (!put_turn(peer, n) ||
	    (n == 1 ? ivs_ring_send(&peer->ivs.ring, &pkt) != 0 : !send_pieces(e->iface, &peer->ivs, &put, &pkt)))
		return IVU_ERR_NO_RESOURCE;
	peer->put_mark = peer->ivs.ring.tx_head;
	if (!peer->put) {
		peer->put = true;
		e->iface->puts++;
	}
	return IVU_OK;
}

static struct ivu_pending *request_of(struct ivu_waiting *w)
{
	return ivs_entry((char *) w, struct ivu_pending, priv);
}

static ivu_status pending_add(struct ivu_ep *e, struct ivu_pending *req, unsigned int flags)
{
	struct ivu_waiting *w = (struct ivu_waiting *) (void *) req->priv;

	(void) flags;
	w->ep = e;
	ivs_list_add(&e->peer->pending, &w->link);
	ivu_peer_gate(e->peer);
	ivs_peer_activate(&e->peer->ivs);
	return IVU_OK;
}

static void pending_purge(struct ivu_ep *e, ivu_purge purge, void *arg)
{
	struct ivs_list *pos, *tmp;

	ivs_list_each_safe(pos, tmp, &e->peer->pending) {
		struct ivu_waiting *w = ivs_entry(pos, struct ivu_waiting, link);

		if (w->ep != e)
			continue;
		ivs_list_del(&w->link);
		purge(request_of(w), arg);
	}
	ivu_peer_gate(e->peer);
}

/*
 * Sent messages are in the ring, and arrive in order. A put is complete once the receiver has read its message, which
 * it indicates after writing the memory.
 */
static ivu_status ep_flush(struct ivu_ep *e, unsigned int flags, struct ivu_completion *comp)
{
	struct ivu_peer *peer = e->peer;
	struct ivu_flush *f;

	if (ivu_alien(e->iface) || flags & IVU_FLUSH_CANCEL)
		return IVU_OK;
	if (peer->ivs.channel == IVS_CHAN_DEAD)
		return peer->put ? IVU_ERR_CONNECTION_RESET : IVU_OK;
	if (!ivs_list_empty(&peer->pending) && peer->blocked)
		return IVU_ERR_NO_RESOURCE;
	if (ivu_peer_put_done(peer))
		return IVU_OK;
	if (comp) {
		f = malloc(sizeof(*f));
		if (!f)
			return IVU_ERR_NO_MEMORY;
		f->mark = peer->put_mark;
		f->comp = comp;
		ivs_list_add(&peer->flushes, &f->link);
		ivs_peer_activate(&peer->ivs);
	}
	return IVU_INPROGRESS;
}

static ivu_status ep_fence(struct ivu_ep *e, unsigned int flags)
{
	(void) e;
	(void) flags;
	return IVU_OK;
}

static ivu_status ep_check(struct ivu_ep *e, unsigned int flags, struct ivu_completion *comp)
{
	(void) flags;
	(void) comp;
	if (!ivu_alien(e->iface) && !ivu_peer_alive(e->peer))
		ivu_ep_fail(e);
	return IVU_OK;
}

static ivu_status ep_create(const struct ivu_ep_params *params, struct ivu_ep **ep)
{
	struct ivu_iface *i = params->iface;
	struct ivu_device_addr d;
	struct ivu_iface_addr a;
	struct ivs_peer *p;
	struct ivu_ep *e;

	memcpy(&d, params->dev_addr, sizeof(d));
	memcpy(&a, params->iface_addr, sizeof(a));
	if (ivu_alien(i) || !i->ep.enabled || d.region != i->addr.region || a.format != IVU_FORMAT ||
	    a.slot >= i->domain.region->geo.slots)
		return IVU_ERR_UNREACHABLE;
	p = ivs_peer_by_slot(&i->ep, a.slot, a.epoch);
	e = p ? calloc(1, sizeof(*e)) : NULL;
	if (!e)
		return IVU_ERR_NO_MEMORY;
	e->iface = i;
	e->peer = ivu_peer_of(p);
	e->peer->ep_count++;
	ivs_list_add(&e->peer->eps, &e->link);
	*ep = e;
	return IVU_OK;
}

static void ignore(struct ivu_pending *self, void *arg)
{
	(void) self;
	(void) arg;
}

static void ep_destroy(struct ivu_ep *e)
{
	pending_purge(e, ignore, NULL);
	ivs_list_del(&e->link);
	e->peer->ep_count--;
	free(e);
}

void ivu_ep_ops(struct ivu_iface_ops *ops)
{
	ops->put_zcopy = put_zcopy;
	ops->am_short = am_short;
	ops->am_short_iov = am_short_iov;
	ops->am_bcopy = am_bcopy;
	ops->am_zcopy = am_zcopy;
	ops->pending_add = pending_add;
	ops->pending_purge = pending_purge;
	ops->ep_flush = ep_flush;
	ops->ep_fence = ep_fence;
	ops->ep_check = ep_check;
	ops->ep_create = ep_create;
	ops->ep_destroy = ep_destroy;
}
