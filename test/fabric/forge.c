#include "forge.h"

struct forge forge_ring(uint32_t from, uint32_t to, uint64_t head)
{
	struct nm_layout_geometry g;
	uint8_t *layout = map_layout(&g);
	struct nm_conn *conn = (struct nm_conn *) (void *) (layout + g.conn_table) + (size_t) to * g.slots + from;
	struct nm_slot *slots = (struct nm_slot *) (void *) (layout + g.slot_table);
	struct forge f = { .conn = conn, .sender = slots + from, .receiver = slots + to, .head = head };

	CHECK(conn->ring);
	f.ctl = (struct nm_ring_ctl *) (void *) (layout + g.areas + from * g.area_bytes +
						 (uint64_t) (conn->ring - 1) * NM_LAYOUT_LINE);
	f.ring = (uint8_t *) f.ctl + NM_LAYOUT_RING_CTL;
	f.activity = &f.receiver->activity[from % 64];
	f.shift = conn->lines_log2;
	f.mask = (1U << f.shift) - 1;
	f.lap0 = conn->lap0;
	return f;
}

/* Returns the lines of a message with len bytes. */
static uint32_t lines_of(size_t len)
{
	return (2 + (uint32_t) (len > 48 ? (len - 48 + 55) / 56 : 0)) & ~1U;
}

static uint32_t lap_of(const struct forge *f)
{
	return 0x80000000U | ((uint32_t) (f->head >> f->shift) + f->lap0);
}

struct forge forge_next(const uint8_t *from, const uint8_t *to, uint8_t op, uint64_t *tag, void *bytes, size_t len)
{
	uint16_t slots[2];
	struct forge f;
	bool found = false;

	/* The slot follows two bytes of an address (fabric/base/addr.h). */
	memcpy(&slots[0], from + 2, 2);
	memcpy(&slots[1], to + 2, 2);
	f = forge_ring(slots[0], slots[1], 0);
	for (;;) {
		struct nm_line *line = (struct nm_line *) (void *) forge_line(&f, f.head);
		uint8_t *out = bytes;
		size_t n, left;

		if (__atomic_load_n(&line->lap, __ATOMIC_ACQUIRE) != lap_of(&f))
			break;
		if (line->op == op) {
			found = true;
			*tag = line->tag;
			left = line->len < len ? line->len : len;
			n = left < NM_LINE_FIRST_BYTES ? left : NM_LINE_FIRST_BYTES;
			if (n)
				memcpy(out, line->payload, n);
			for (uint64_t at = f.head + 1; left -= n; at++) {
				out += n;
				n = left < NM_LINE_MORE_BYTES ? left : NM_LINE_MORE_BYTES;
				memcpy(out, forge_line(&f, at) + 8, n);
			}
		}
		f.head += lines_of(line->len);
	}
	CHECK(found);
	return f;
}

uint8_t *forge_line(const struct forge *f, uint64_t pos)
{
	return f->ring + (pos & f->mask) * NM_LAYOUT_LINE;
}

bool forge(struct forge *f, const uint32_t *over, uint8_t op, uint8_t flags, uint64_t tag, const void *payload,
	   size_t len)
{
	uint32_t lines = lines_of(len);
	const uint8_t *from = payload;
	size_t n = len < 48 ? len : 48;
	uint64_t pos = f->head, word;

	while (f->head + lines - __atomic_load_n(&f->ctl->tail, __ATOMIC_ACQUIRE) > f->mask + 1)
		if (__atomic_load_n(over, __ATOMIC_ACQUIRE))
			return false;
	if (n) /* payload may be NULL then */
		memcpy(forge_line(f, pos) + 16, from, n);
	for (len -= n, from += n; len; len -= n, from += n) {
		n = len < 56 ? len : 56;
		memset(forge_line(f, ++pos), 0, 8);
		memcpy(forge_line(f, pos) + 8, from, n);
	}
	memcpy(forge_line(f, f->head) + 8, &tag, 8);
	word = lap_of(f) | (uint64_t) op << 32 | (uint64_t) flags << 40 |
	       (uint64_t) (from - (const uint8_t *) payload) << 48;
	__atomic_store_n((uint64_t *) (void *) forge_line(f, f->head), word, __ATOMIC_RELEASE);
	f->head += lines;
	return true;
}
