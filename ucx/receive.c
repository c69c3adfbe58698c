/* Messages received in a ring: passed to the functions that UCX has set for them, and into registered memory. */
#include <string.h>

#include "abi/log.h"
#include "memory.h"
#include "object.h"
#include "peer.h"
#include "proto/proto.h"
#include "ring/nontemporal.h"
#include "ring/ring.h"

static void broken(struct ivs_peer *p, const char *what)
{
	ivu_log(IVU_LOG_WARN, "the rank in slot %u sent %s; its messages are ignored from now on", p->slot, what);
	p->broken = true;
	ivu_peer_condemn(ivu_peer_of(p));
}

/*
 * Returns the data of an active message in a bounce buffer, with room for a header of IVU_WHOLE_HEADER bytes before
 * it. NULL: it names no buffer, or one of more than most bytes. If the sender is hostile, the data may change while
 * it is read.
 */
static uint8_t *packed(struct ivs_peer *p, const uint8_t *message, size_t most, size_t *bytes)
{
	struct ivu_packed ref;

	memcpy(&ref, message, sizeof(ref));
	*bytes = ref.len;
	if (!ref.line)
		return NULL;
	return ivs_bounced(p->ep->domain->region, p->slot, 0, (size_t) ref.line * NM_LAYOUT_LINE, ref.len, most);
}

static inline void call(struct ivu_iface *i, uint8_t op, const void *data, size_t len)
{
	const struct ivu_am_handler *h = &i->shown.base.am[op - IVU_OP_AM];

	i->came++;
	/* UCX does not keep the data: without a flag of UCX it may use the data only until it returns. */
	h->cb(h->arg, (void *) (uintptr_t) data, len, 0);
}

/* Reports to the sender how long its data took to copy, if requested. */
static inline void report(struct ivs_peer *p, uint8_t flags, uint64_t begin, size_t bytes)
{
	if (flags & IVS_F_TIME && bytes >= IVS_NT_MIN && p->ring.rx_ctl)
		ivs_nt_report(&p->ring.nt, p->ring.rx_ctl, flags, ivs_cycles() - begin, bytes);
}

/* Handles an active message that is not complete in its first line. Returns the fault, or NULL. */
static const char *__attribute__((noinline)) long_message(struct ivu_iface *i, struct ivs_peer *p, uint8_t op,
							  uint8_t flags, uint64_t tag, size_t len)
{
	size_t missing = (flags & IVU_MISSING_MASK) >> IVU_MISSING_SHIFT, bytes;
	uint8_t *message = i->message, *payload;
	uint64_t begin = 0;

	if (!flags) {
		memcpy(message, &tag, 8);
		ivs_ring_get(&p->ring, 0, message + 8, len);
		call(i, op, message, 8 + len);
		return NULL;
	}
	ivs_ring_get(&p->ring, 0, message + 8, len);
	if (flags & IVS_F_BOUNCE) {
		size_t header = len - sizeof(struct ivu_packed), most = ivu_am_max(i->domain.region);
		uint8_t *to;

		/* UCX has room for as much as the transport states as its maximum. */
		payload = header <= IVU_HEADER_MAX ? packed(p, message + 8, most - header, &bytes) : NULL;
		if (!payload || flags & ~(IVS_F_BOUNCE | IVS_F_NT | IVS_F_TIME))
			return "a message with a wrong bounce buffer";
		ivs_ring_bounced(&p->ring, bytes);
		if (flags & IVS_F_TIME)
			begin = ivs_cycles();
		if (op == (IVU_OP_AM | IVU_AM_WHOLE) && header == IVU_WHOLE_HEADER) {
			/* UCX copies it from there to its user's memory. */
			to = payload - IVU_WHOLE_HEADER;
			memcpy(to, message + 8 + sizeof(struct ivu_packed), IVU_WHOLE_HEADER);
			call(i, op, to, IVU_WHOLE_HEADER + bytes);
			report(p, flags, begin, bytes);
			return NULL;
		}
		/*
		 * The data is placed as IVU_PACKED_AT states, after a header of any length. A message that UCX packed
		 * has its own.
		 */
		to = header ? i->received + 8 - header : i->received;
		/* UCX reads such a message more than once, and it must not change in the meantime. */
		ivs_copy_small(to, message + 8 + sizeof(struct ivu_packed), header);
		ivs_copy(to + header, payload, bytes);
		report(p, flags, begin, bytes);
		call(i, op, to, header + bytes);
		return NULL;
	}
	if (flags & ~IVU_MISSING_MASK || missing > 8 || len)
		return "a malformed message";
	memcpy(message, &tag, 8);
	call(i, op, message, 8 - missing);
	return NULL;
}

/* Handles an active message. */
static inline const char *active_message(struct ivu_iface *i, struct ivs_peer *p, struct nm_line *l, uint8_t op,
					 uint8_t flags, size_t len)
{
	if (unlikely(flags || op != (IVU_OP_AM | IVU_AM_WHOLE) || len > NM_LINE_FIRST_BYTES))
		return long_message(i, p, op, flags, *(volatile uint64_t *) &l->tag, len);
	call(i, op, &l->tag, 8 + len);
	return NULL;
}

/* Handles a write to this process's memory. Returns the fault, or NULL. */
static const char *__attribute__((noinline)) put(struct ivu_iface *i, struct ivs_peer *p, uint8_t flags, size_t len)
{
	struct ivu_memory *m = ivs_entry(i->shown.base.md, struct ivu_memory, md);
	uint64_t words[(IVS_INLINE_MAX + 7) / 8], begin = 0;
	const uint8_t *message = (const uint8_t *) words, *payload;
	struct ivs_bounce ref;
	struct ivu_put where;
	size_t skip = 0, bytes;

	ivs_ring_get(&p->ring, 0, (uint8_t *) words, len);
	if (flags & IVS_F_BOUNCE)
		skip = sizeof(struct ivs_bounce);
	if (len < skip + sizeof(where) || flags & ~(IVS_F_BOUNCE | IVS_F_NT | IVS_F_TIME) || (flags && !skip))
		return "a malformed message";
	memcpy(&where, message + skip, sizeof(where));
	payload = message + sizeof(where);
	bytes = len - sizeof(where);
	if (skip) {
		memcpy(&ref, message, sizeof(ref));
		bytes = ref.len;
		payload = ivs_bounced(p->ep->domain->region, p->slot, ref.page, 0, bytes,
				      i->domain.region->geo.bounce_bytes);
		if (!payload || len != sizeof(ref) + sizeof(where))
			return "a message with a wrong bounce buffer";
	}
	if (flags & IVS_F_TIME)
		begin = ivs_cycles();
	if (!ivu_memory_put(m, where.key, where.addr, payload, bytes))
		return "a write to memory that is not registered";
	i->came++;
	report(p, flags, begin, bytes);
	return NULL;
}

int ivs_ring_poll(struct ivs_ep *ep, struct ivs_peer *p)
{
	struct ivu_iface *i = ivu_iface_of(ep);
	int done = 0;

	/* UCX's handler of a message has called this function again. */
	if (unlikely(ivu_peer_of(p)->handling))
		return 0;
	while (done < IVS_EAGER_RECEIVE_MAX) {
		struct nm_line *l = ivs_line_at(p->ring.rx_ring, p->ring.rx_head, p->ring.rx_mask);
		uint64_t word = __atomic_load_n((uint64_t *) (void *) l, __ATOMIC_ACQUIRE);
		const char *wrong = NULL;
		uint8_t op, flags;
		uint32_t lines;
		uint16_t len;

		if ((uint32_t) word != ivs_lap_of(p->ring.rx_head, p->ring.rx_shift, p->ring.rx_lap0)) {
			break;
		}
		op = (uint8_t) (word >> 32);
		flags = (uint8_t) (word >> 40);
		len = (uint16_t) (word >> 48);
		if (unlikely(len > IVS_INLINE_MAX)) {
			broken(p, "a message longer than a ring's");
			break;
		}
		lines = ivs_lines_for(len);
		ivu_peer_of(p)->handling = true;
		if (likely(op >= IVU_OP_AM && op <= IVU_OP_AM_LAST))
			wrong = active_message(i, p, l, op, flags, len);
		else if (op == IVU_OP_PUT)
			wrong = put(i, p, flags, len);
		else
			wrong = "a message of an unknown kind";
		ivu_peer_of(p)->handling = false;
		if (unlikely(wrong != NULL))
			broken(p, wrong);
		if (unlikely(p->channel == IVS_CHAN_DEAD))
			break;
		done++;
		/*
		 * Lines are released in batches. A bounce buffer is released at once, because others wait for it; so
		 * is a put, because its flush waits.
		 */
		ivs_ring_take(&p->ring, lines, flags & IVS_F_BOUNCE || op == IVU_OP_PUT);
		ivs_ring_show(&p->ring);
	}
	return done;
}
