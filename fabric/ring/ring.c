/* Creates, finds and writes rings. Each rank has one to each other rank that it talks to. */
#include <sys/random.h>

#include "base/lib.h"
#include "base/param.h"
#include "base/times.h"
#include "region/heap.h"
#include "ring/bounce.h"
#include "ring/doorbell.h"
#include "ring/eager_send.h"
#include "ring/nontemporal.h"

/* The memory in our area of a ring whose receiver is gone. */
struct ivs_ring_free {
	struct ivs_ring_free *next;
	uint64_t offset; /* in our area, bytes */
	uint32_t shift;
};

/* Frees the bounce buffers of the messages that were read. */
static void reap(struct ivs_ring *r)
{
	uint64_t tail = __atomic_load_n(&r->tx_ctl->tail, __ATOMIC_ACQUIRE);
	struct ivs_home *h = r->home;

	/* A receiver that counts beyond the messages sent, or backwards, gains nothing. */
	if (tail - r->tx_tail > r->tx_head - r->tx_tail)
		return;
	for (; r->tx_held && r->tx_tail != tail; r->tx_tail++) {
		uint16_t *c = &r->tx_bounce[r->tx_tail & r->tx_mask];

		if (*c) {
			ivs_bounce_free(h, *c - 1U);
			*c = 0;
			r->tx_held--;
		}
	}
	r->tx_tail = tail;
}

bool ivs_ring_reap(struct ivs_ring *r, uint32_t lines)
{
	reap(r);
	return ivs_ring_fits(r, lines);
}

void __attribute__((noinline)) ivs_ring_notify(struct ivs_ring *r)
{
	__atomic_store_n(r->activity, 1, __ATOMIC_RELEASE);
	ivs_doorbell_check(r);
}

/* Frees the bounce buffers that receivers have read. */
static void reap_all(struct ivs_home *h)
{
	struct ivs_list *pos;

	ivs_list_each(pos, &h->rings)
		reap(ivs_entry(pos, struct ivs_ring, link));
}

uint32_t ivs_ring_bounce(struct ivs_home *h, size_t bytes)
{
	uint32_t bounce = ivs_bounce_alloc(h, bytes);

	if (likely(bounce != IVS_NO_BOUNCE))
		return bounce;
	reap_all(h);
	return ivs_bounce_alloc(h, bytes);
}

uint32_t ivs_ring_seek(struct ivs_home *h, size_t bytes, bool row)
{
	uint32_t at = ivs_bounce_seek(h, bytes, row);

	if (likely(at != IVS_NO_BOUNCE))
		return at;
	reap_all(h);
	return ivs_bounce_seek(h, bytes, row);
}

/* Writes len bytes of a message's payload, from its byte at on, which may be any. */
static void write_bytes(struct ivs_ring *r, size_t at, const uint8_t *src, size_t len)
{
	uint64_t pos = r->tx_head;
	size_t n, in;

	if (at < NM_LINE_FIRST_BYTES) {
		n = NM_LINE_FIRST_BYTES - at;
		if (n > len)
			n = len;
		ivs_copy_small(ivs_line_at(r->tx_ring, pos, r->tx_mask)->payload + at, src, n);
		src += n;
		len -= n;
		at += n;
	}
	if (!len)
		return;
	pos += (at - NM_LINE_FIRST_BYTES) / NM_LINE_MORE_BYTES;
	/* Only the first of these lines may have bytes already: one division for all of them. */
	for (in = (at - NM_LINE_FIRST_BYTES) % NM_LINE_MORE_BYTES; len; in = 0) {
		uint64_t *l = (uint64_t *) (void *) ivs_line_at(r->tx_ring, ++pos, r->tx_mask);

		n = NM_LINE_MORE_BYTES - in;
		if (n > len)
			n = len;
		__atomic_store_n(l, 0, __ATOMIC_RELAXED);
		ivs_copy_small((uint8_t *) (l + 1) + in, src, n);
		src += n;
		len -= n;
	}
}

/*
 * Returns the bytes that are left free after a bounce buffer. In a ping-pong the receiver's CPU has prefetched lines
 * after the last message, and the sender would have to fetch them back for the next one.
 */
static size_t gap_after(const struct ivs_ring *r, size_t len)
{
	return len > IVS_APART_MAX || ivs_in_row(r) ? 0 : NM_LAYOUT_PAGE;
}

bool ivs_eager_send(struct ivs_ring *r, uint8_t op, uint64_t tag, const uint64_t *data, const void *buf, size_t len)
{
	uint32_t lines = ivs_lines_for(len + (data ? 8 : 0));

	if (unlikely(!ivs_ring_room(r, lines)))
		return false;
	ivs_eager_send_lines(r, lines, op, tag, data, buf, len);
	return true;
}

/* Copies a piece of a message into one of our bounce buffers. Returns the flags that describe how. */
static uint8_t fill(struct ivs_ring *r, uint32_t bounce, const struct ivs_packet *pkt)
{
	struct ivs_home *h = r->home;
	uint8_t *to = ivs_bounce_at(h, bounce);

	if (pkt->count == 1 && pkt->len >= IVS_NT_MIN)
		return ivs_nt_copy(&r->nt, r->tx_ctl, to, (uint8_t *) pkt->iov->iov_base + pkt->offset, pkt->len,
				   ivs_bounce_fresh(h, bounce));
	ivs_iov_gather(to, pkt->len, pkt->iov, pkt->count, pkt->offset);
	return 0;
}

int ivs_ring_send(struct ivs_ring *r, const struct ivs_packet *pkt)
{
	size_t len = pkt->fixed_len + pkt->len, at = 0, i, n, left, off;
	uint8_t flags = pkt->flags;
	struct ivs_bounce ref;
	struct nm_line *l;
	uint32_t lines;

	if (len <= ivs_param.inline_max) {
		lines = ivs_lines_for(len);
		if (unlikely(!ivs_ring_room(r, lines)))
			return -FI_EAGAIN;
	} else {
		len = sizeof(ref) + pkt->fixed_len;
		lines = ivs_lines_for(len);
		if (unlikely(!ivs_ring_room(r, lines)))
			return -FI_EAGAIN;
		ref.page = ivs_ring_bounce(r->home, pkt->len + gap_after(r, pkt->len));
		if (unlikely(ref.page == IVS_NO_BOUNCE))
			return -FI_EAGAIN;
		ref.len = (uint32_t) pkt->len;
		/* The bounce buffer is freed together with the message's last line. */
		ivs_ring_hold(r, lines, ref.page);
		flags |= IVS_F_BOUNCE | fill(r, ref.page, pkt);
		write_bytes(r, 0, (uint8_t *) &ref, sizeof(ref));
		at = sizeof(ref);
	}
	l = ivs_line_at(r->tx_ring, r->tx_head, r->tx_mask);
	l->tag = pkt->tag;
	if (pkt->fixed_len) {
		write_bytes(r, at, pkt->fixed, pkt->fixed_len);
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
			write_bytes(r, at, (uint8_t *) pkt->iov[i].iov_base + off, n);
			at += n;
			left -= n;
			off = 0;
		}
	}
	ivs_ring_publish(r, l, lines, pkt->op, flags, len);
	return 0;
}

bool ivs_ring_send_head(struct ivs_ring *r, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t len)
{
	struct nm_line *l;

	if (unlikely(!ivs_ring_room(r, ivs_lines_for(0))))
		return false;
	l = ivs_line_at(r->tx_ring, r->tx_head, r->tx_mask);
	l->tag = tag;
	ivs_copy_small(l->payload, fixed, len);
	ivs_ring_publish(r, l, ivs_lines_for(0), op, flags, len);
	return true;
}

void ivs_ring_prefetch(const struct ivs_ring *r)
{
	if (r->rx_ring)
		__builtin_prefetch(ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask));
}

/* Allocates room for a ring in our area. Returns its offset, or 0. */
static uint64_t ring_alloc(struct ivs_home *h, uint32_t *shift)
{
	struct ivs_ring_free *f = h->unused;
	uint64_t offset;

	if (!f)
		return ivs_heap_ring(h->heap, shift);
	h->unused = f->next;
	offset = f->offset;
	*shift = f->shift;
	free(f);
	return offset;
}

int ivs_ring_open(struct ivs_ring *r)
{
	struct ivs_home *h = r->home;
	struct ivs_region *region = h->region;
	struct nm_conn c, *conn = ivs_conn(region, r->slot, h->slot);
	uint64_t offset, words[2];
	uint32_t shift;

	offset = ring_alloc(h, &shift);
	if (!offset) {
		IVS_WARN(FI_LOG_EP_CTRL, "no room for a ring to slot %u; make the region larger\n", r->slot);
		return -FI_ENOSPC;
	}
	r->tx_bounce = calloc((size_t) 1 << shift, sizeof(*r->tx_bounce));
	if (!r->tx_bounce)
		return -FI_ENOMEM;
	memset(h->area + offset, 0, NM_LAYOUT_RING_CTL + ((size_t) NM_LAYOUT_LINE << shift));
	r->tx_ctl = (struct nm_ring_ctl *) (void *) (h->area + offset);
	r->tx_ring = h->area + offset + NM_LAYOUT_RING_CTL;
	r->tx_shift = shift;
	r->tx_mask = (1U << shift) - 1;
	r->tx_head = r->tx_tail = 0;
	r->tx_held = 0;
	/* Not predictable: an old reader of this memory mistakes nothing in it for its own messages. */
	if (getrandom(&r->tx_lap0, sizeof(r->tx_lap0), 0) != sizeof(r->tx_lap0))
		r->tx_lap0 = (uint32_t) ivs_now_ms();
	r->activity = &region->slots[r->slot].activity[h->slot % 64];

	memset(&c, 0, sizeof(c));
	c.ring = (uint32_t) (offset / NM_LAYOUT_LINE) + 1;
	c.lines_log2 = (uint8_t) shift;
	c.protocol = h->protocol;
	c.check = (uint16_t) r->epoch;
	c.lap0 = r->tx_lap0;
	c.epoch = h->epoch;
	memcpy(words, &c, sizeof(c));
	__atomic_store_n((uint64_t *) (void *) conn + 1, words[1], __ATOMIC_RELAXED);
	__atomic_store_n((uint64_t *) (void *) conn, words[0], __ATOMIC_RELEASE);
	__atomic_store_n(r->activity, 1, __ATOMIC_RELEASE);
	ivs_list_add(&h->rings, &r->link);
	return 0;
}

bool ivs_ring_find(const struct ivs_home *h, uint32_t slot, struct ivs_ring_found *found)
{
	struct ivs_region *region = h->region;
	struct nm_conn c, *conn = ivs_conn(region, h->slot, slot);
	uint64_t words[2], owner, offset;

	words[0] = __atomic_load_n((uint64_t *) (void *) conn, __ATOMIC_ACQUIRE);
	if (likely(!words[0]))
		return false;
	words[1] = __atomic_load_n((uint64_t *) (void *) conn + 1, __ATOMIC_RELAXED);
	memcpy(&c, words, sizeof(c));
	owner = __atomic_load_n(&region->slots[slot].owner, __ATOMIC_ACQUIRE);
	if (c.check != (uint16_t) h->epoch || c.epoch != (uint32_t) (owner >> 2) || !c.ring ||
	    c.protocol != h->protocol)
		return false;
	offset = (uint64_t) (c.ring - 1) * NM_LAYOUT_LINE;
	if (c.lines_log2 < IVS_RING_SHIFT_MIN || c.lines_log2 > IVS_RING_SHIFT_MAX || offset < region->geo.heap ||
	    offset + NM_LAYOUT_RING_CTL + ((uint64_t) NM_LAYOUT_LINE << c.lines_log2) > region->geo.area_bytes) {
		IVS_WARN(FI_LOG_EP_CTRL, "rank in slot %u: its ring is not in its area\n", slot);
		/* Clear the entry, so that the warning is printed only once. */
		__atomic_store_n((uint64_t *) (void *) conn, 0, __ATOMIC_RELAXED);
		return false;
	}
	*found = (struct ivs_ring_found) {
		.slot = slot,
		.epoch = c.epoch,
		.ctl = ivs_area(region, slot) + offset,
		.shift = c.lines_log2,
		.lap0 = c.lap0,
	};
	return true;
}

void ivs_ring_attach(struct ivs_ring *r, const struct ivs_ring_found *found)
{
	r->rx_ctl = (struct nm_ring_ctl *) (void *) found->ctl;
	r->rx_ring = found->ctl + NM_LAYOUT_RING_CTL;
	r->rx_shift = found->shift;
	r->rx_mask = (1U << found->shift) - 1;
	r->rx_lap0 = found->lap0;
	r->rx_head = r->rx_shown = 0;
}

void ivs_ring_init(struct ivs_ring *r, struct ivs_home *h, uint32_t slot, uint32_t epoch)
{
	r->home = h;
	r->slot = slot;
	r->epoch = epoch;
	ivs_list_init(&r->link);
}

void ivs_ring_forget(struct ivs_ring *r)
{
	free(r->tx_bounce);
	r->tx_bounce = NULL;
	ivs_list_del(&r->link);
}

void ivs_ring_close(struct ivs_ring *r)
{
	struct ivs_home *h = r->home;
	struct ivs_ring_free *f;
	uint32_t i;

	r->rx_ring = NULL;
	if (!r->tx_ring)
		return;
	for (i = 0; i <= r->tx_mask; i++)
		if (r->tx_bounce[i])
			ivs_bounce_free(h, r->tx_bounce[i] - 1U);
	ivs_ring_forget(r);
	f = malloc(sizeof(*f));
	if (f) {
		f->offset = (uint64_t) ((uint8_t *) r->tx_ctl - h->area);
		f->shift = r->tx_shift;
		f->next = h->unused;
		h->unused = f;
	}
	r->tx_ring = NULL;
}

void ivs_ring_free_all(struct ivs_home *h)
{
	while (h->unused) {
		struct ivs_ring_free *f = h->unused;

		h->unused = f->next;
		free(f);
	}
}
