/* Rings, one from each rank to each other that it talks to: made, found and written. */
#include <sys/random.h>

#include "region/heap.h"
#include "ring/bounce.h"
#include "ring/doorbell.h"
#include "ring/eager_send.h"
#include "ring/nontemporal.h"

/* A ring in our area whose receiver is gone. */
struct ivs_ring_free {
	struct ivs_ring_free *next;
	uint64_t offset; /* in our area, bytes */
	uint32_t shift;
};

/* Takes back the bounce buffers of the messages that were read. */
static void reap(struct ivs_peer *p)
{
	uint64_t tail = __atomic_load_n(&p->tx_ctl->tail, __ATOMIC_ACQUIRE);
	struct ivs_ep *ep = p->ep;

	/* A receiver that counts beyond what was sent, or backwards, gains nothing. */
	if (tail - p->tx_tail > p->tx_head - p->tx_tail)
		return;
	for (; p->tx_held && p->tx_tail != tail; p->tx_tail++) {
		uint16_t *c = &p->tx_bounce[p->tx_tail & p->tx_mask];

		if (*c) {
			ivs_bounce_free(ep, *c - 1U);
			*c = 0;
			p->tx_held--;
		}
	}
	p->tx_tail = tail;
}

bool ivs_ring_reap(struct ivs_peer *p, uint32_t lines)
{
	reap(p);
	return p->tx_head + lines - p->tx_tail <= p->tx_mask + 1;
}

void __attribute__((noinline)) ivs_ring_notify(struct ivs_peer *p)
{
	__atomic_store_n(p->activity, 1, __ATOMIC_RELEASE);
	ivs_doorbell_check(p);
}

/* Frees the bounce buffers that receivers have read. */
static void reap_all(struct ivs_ep *ep)
{
	struct ivs_list *pos;

	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *q = ivs_entry(pos, struct ivs_peer, all);

		if (q->channel == IVS_CHAN_RING)
			reap(q);
	}
}

uint32_t ivs_ring_bounce(struct ivs_ep *ep, size_t bytes)
{
	uint32_t bounce = ivs_bounce_alloc(ep, bytes);

	if (likely(bounce != IVS_NO_BOUNCE))
		return bounce;
	reap_all(ep);
	return ivs_bounce_alloc(ep, bytes);
}

uint32_t ivs_ring_seek(struct ivs_ep *ep, size_t bytes, bool row)
{
	uint32_t at = ivs_bounce_seek(ep, bytes, row);

	if (likely(at != IVS_NO_BOUNCE))
		return at;
	reap_all(ep);
	return ivs_bounce_seek(ep, bytes, row);
}

/* Writes bytes from byte at of a message's payload on; at is any. */
static void write_bytes(struct ivs_peer *p, size_t at, const uint8_t *src, size_t len)
{
	uint64_t pos = p->tx_head;
	size_t n, in;

	if (at < NM_LINE_FIRST_BYTES) {
		n = NM_LINE_FIRST_BYTES - at;
		if (n > len)
			n = len;
		ivs_copy_small(ivs_line_at(p->tx_ring, pos, p->tx_mask)->payload + at, src, n);
		src += n;
		len -= n;
		at += n;
	}
	while (len) {
		uint64_t *l = (uint64_t *) (void *) ivs_line_at(
			p->tx_ring, pos + 1 + (at - NM_LINE_FIRST_BYTES) / NM_LINE_MORE_BYTES, p->tx_mask);

		in = (at - NM_LINE_FIRST_BYTES) % NM_LINE_MORE_BYTES;
		n = NM_LINE_MORE_BYTES - in;
		if (n > len)
			n = len;
		__atomic_store_n(l, 0, __ATOMIC_RELAXED);
		ivs_copy_small((uint8_t *) (l + 1) + in, src, n);
		src += n;
		len -= n;
		at += n;
	}
}

/*
 * The bytes that are left free behind a bounce buffer. In a ping-pong the receiver's CPU has fetched lines behind the last message,
 * and they would have to be taken back for the next one.
 */
static size_t gap_after(const struct ivs_peer *p, size_t len)
{
	return len > IVS_APART_MAX || ivs_in_row(p) ? 0 : NM_LAYOUT_PAGE;
}

bool ivs_eager_send(struct ivs_peer *p, uint8_t op, uint64_t tag, const uint64_t *data, const void *buf, size_t len)
{
	uint32_t lines = ivs_lines_for(len + (data ? 8 : 0));

	if (unlikely(!ivs_ring_room(p, lines)))
		return false;
	ivs_eager_send_lines(p, lines, op, tag, data, buf, len);
	return true;
}

/* Copies a piece of a message into a bounce buffer of ours. Returns the flags that say how. */
static uint8_t fill(struct ivs_peer *p, uint32_t bounce, const struct ivs_packet *pkt)
{
	struct ivs_ep *ep = p->ep;
	uint8_t *to = ivs_bounce_at(ep, bounce);

	if (pkt->count == 1 && pkt->len >= IVS_NT_MIN)
		return ivs_nt_copy(&p->nt, p->tx_ctl, to, (uint8_t *) pkt->iov->iov_base + pkt->offset, pkt->len,
				   ivs_bounce_fresh(ep, bounce));
	ivs_iov_gather(to, pkt->len, pkt->iov, pkt->count, pkt->offset);
	return 0;
}

int ivs_ring_send(struct ivs_peer *p, const struct ivs_packet *pkt)
{
	size_t len = pkt->fixed_len + pkt->len, at = 0, i, n, left, off;
	uint8_t flags = pkt->flags;
	struct ivs_bounce ref;
	struct nm_line *l;
	uint32_t lines;

	if (len <= ivs_param.inline_max) {
		lines = ivs_lines_for(len);
		if (unlikely(!ivs_ring_room(p, lines)))
			return -FI_EAGAIN;
	} else {
		len = sizeof(ref) + pkt->fixed_len;
		lines = ivs_lines_for(len);
		if (unlikely(!ivs_ring_room(p, lines)))
			return -FI_EAGAIN;
		ref.page = ivs_ring_bounce(p->ep, pkt->len + gap_after(p, pkt->len));
		if (unlikely(ref.page == IVS_NO_BOUNCE))
			return -FI_EAGAIN;
		ref.len = (uint32_t) pkt->len;
		/* The bounce buffer comes back with the message's last line. */
		ivs_ring_hold(p, lines, ref.page);
		flags |= IVS_F_BOUNCE | fill(p, ref.page, pkt);
		write_bytes(p, 0, (uint8_t *) &ref, sizeof(ref));
		at = sizeof(ref);
	}
	l = ivs_line_at(p->tx_ring, p->tx_head, p->tx_mask);
	l->tag = pkt->tag;
	if (pkt->fixed_len) {
		write_bytes(p, at, pkt->fixed, pkt->fixed_len);
		at += pkt->fixed_len;
	}
	if (!(flags & IVS_F_BOUNCE)) {
		off = pkt->offset;
		left = pkt->len;
		for (i = 0; i < pkt->count && left; i++) {
			if (off >= pkt->iov[i].iov_len) {
				off -= pkt->iov[i].iov_len;
				continue;
			}
			n = pkt->iov[i].iov_len - off;
			if (n > left)
				n = left;
			write_bytes(p, at, (uint8_t *) pkt->iov[i].iov_base + off, n);
			at += n;
			left -= n;
			off = 0;
		}
	}
	ivs_ring_publish(p, l, lines, pkt->op, flags, len);
	return 0;
}

bool ivs_ring_send_head(struct ivs_peer *p, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t len)
{
	struct nm_line *l;

	if (unlikely(!ivs_ring_room(p, ivs_lines_for(0))))
		return false;
	l = ivs_line_at(p->tx_ring, p->tx_head, p->tx_mask);
	l->tag = tag;
	ivs_copy_small(l->payload, fixed, len);
	ivs_ring_publish(p, l, ivs_lines_for(0), op, flags, len);
	return true;
}

void ivs_ring_prefetch(const struct ivs_peer *p)
{
	if (p->rx_ring)
		__builtin_prefetch(ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask));
}

/* Finds room for a ring in our area: its offset, or 0. */
static uint64_t ring_alloc(struct ivs_ep *ep, uint32_t *shift)
{
	struct ivs_ring_free *f = ep->ring_free;
	uint64_t offset;

	if (!f)
		return ivs_heap_ring(ep->heap, shift);
	ep->ring_free = f->next;
	offset = f->offset;
	*shift = f->shift;
	free(f);
	return offset;
}

int ivs_ring_open(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	struct ivs_region *r = ep->domain->region;
	struct nm_conn c, *conn = ivs_conn(r, p->slot, ep->slot);
	uint64_t offset, words[2];
	uint32_t shift;

	offset = ring_alloc(ep, &shift);
	if (!offset) {
		IVS_WARN(FI_LOG_EP_CTRL, "no room for a ring to slot %u; make the region larger\n", p->slot);
		return -FI_ENOSPC;
	}
	p->tx_bounce = calloc((size_t) 1 << shift, sizeof(*p->tx_bounce));
	if (!p->tx_bounce)
		return -FI_ENOMEM;
	memset(ep->area + offset, 0, NM_LAYOUT_RING_CTL + ((size_t) NM_LAYOUT_LINE << shift));
	p->tx_ctl = (struct nm_ring_ctl *) (void *) (ep->area + offset);
	p->tx_ring = ep->area + offset + NM_LAYOUT_RING_CTL;
	p->tx_shift = shift;
	p->tx_mask = (1U << shift) - 1;
	p->tx_head = p->tx_tail = 0;
	p->tx_held = 0;
	/* Not foreseeable: an old reader of this memory takes nothing for its own. */
	if (getrandom(&p->tx_lap0, sizeof(p->tx_lap0), 0) != sizeof(p->tx_lap0))
		p->tx_lap0 = (uint32_t) ivs_now_ms();
	p->activity = &r->slots[p->slot].activity[ep->slot % 64];

	memset(&c, 0, sizeof(c));
	c.ring = (uint32_t) (offset / NM_LAYOUT_LINE) + 1;
	c.lines_log2 = (uint8_t) shift;
	c.protocol = ep->protocol;
	c.check = (uint16_t) p->epoch;
	c.lap0 = p->tx_lap0;
	c.epoch = ep->epoch;
	memcpy(words, &c, sizeof(c));
	__atomic_store_n((uint64_t *) (void *) conn + 1, words[1], __ATOMIC_RELAXED);
	__atomic_store_n((uint64_t *) (void *) conn, words[0], __ATOMIC_RELEASE);
	__atomic_store_n(p->activity, 1, __ATOMIC_RELEASE);
	return 0;
}

bool ivs_ring_find(const struct ivs_ep *ep, uint32_t slot, struct ivs_ring_found *found)
{
	struct ivs_region *r = ep->domain->region;
	struct nm_conn c, *conn = ivs_conn(r, ep->slot, slot);
	uint64_t words[2], owner, offset;

	words[0] = __atomic_load_n((uint64_t *) (void *) conn, __ATOMIC_ACQUIRE);
	if (likely(!words[0]))
		return false;
	words[1] = __atomic_load_n((uint64_t *) (void *) conn + 1, __ATOMIC_RELAXED);
	memcpy(&c, words, sizeof(c));
	owner = __atomic_load_n(&r->slots[slot].owner, __ATOMIC_ACQUIRE);
	if (c.check != (uint16_t) ep->epoch || c.epoch != (uint32_t) (owner >> 2) || !c.ring ||
	    c.protocol != ep->protocol)
		return false;
	offset = (uint64_t) (c.ring - 1) * NM_LAYOUT_LINE;
	if (c.lines_log2 < IVS_RING_SHIFT_MIN || c.lines_log2 > IVS_RING_SHIFT_MAX || offset < r->geo.heap ||
	    offset + NM_LAYOUT_RING_CTL + ((uint64_t) NM_LAYOUT_LINE << c.lines_log2) > r->geo.area_bytes) {
		IVS_WARN(FI_LOG_EP_CTRL, "rank in slot %u: its ring is not in its area\n", slot);
		/* Once: not each time we come by. */
		__atomic_store_n((uint64_t *) (void *) conn, 0, __ATOMIC_RELAXED);
		return false;
	}
	*found = (struct ivs_ring_found) {
		.slot = slot,
		.epoch = c.epoch,
		.ctl = ivs_area(r, slot) + offset,
		.shift = c.lines_log2,
		.lap0 = c.lap0,
	};
	return true;
}

void ivs_ring_attach(struct ivs_peer *p, const struct ivs_ring_found *found)
{
	p->rx_ctl = (struct nm_ring_ctl *) (void *) found->ctl;
	p->rx_ring = found->ctl + NM_LAYOUT_RING_CTL;
	p->rx_shift = found->shift;
	p->rx_mask = (1U << found->shift) - 1;
	p->rx_lap0 = found->lap0;
	p->rx_head = p->rx_shown = 0;
	p->ep->attached++;
}

void ivs_ring_close(struct ivs_peer *p)
{
	struct ivs_ep *ep = p->ep;
	struct ivs_ring_free *f;
	uint32_t i;

	if (p->rx_ring) {
		p->rx_ring = NULL;
		ep->attached--;
	}
	if (!p->tx_ring)
		return;
	for (i = 0; i <= p->tx_mask; i++)
		if (p->tx_bounce[i])
			ivs_bounce_free(ep, p->tx_bounce[i] - 1U);
	free(p->tx_bounce);
	p->tx_bounce = NULL;
	f = malloc(sizeof(*f));
	if (f) {
		f->offset = (uint64_t) ((uint8_t *) p->tx_ctl - ep->area);
		f->shift = p->tx_shift;
		f->next = ep->ring_free;
		ep->ring_free = f;
	}
	p->tx_ring = NULL;
}

void ivs_ring_free_all(struct ivs_ep *ep)
{
	while (ep->ring_free) {
		struct ivs_ring_free *f = ep->ring_free;

		ep->ring_free = f->next;
		free(f);
	}
}
