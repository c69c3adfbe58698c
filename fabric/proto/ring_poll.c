/* Passes messages from a ring to a matching receive, or to ivs_receive(). */
#include "object/peers.h"
#include "proto/proto.h"
#include "ring/nontemporal.h"
#include "ring/ring.h"

static void broken(struct ivs_peer *p, const char *what)
{
	IVS_WARN(FI_LOG_EP_DATA, "rank in slot %u sent %s; its messages are ignored from now on\n", p->slot, what);
	p->broken = true;
	ivs_peer_condemn(p);
}

/* Handles a message that is not of the simplest kind. Returns false if it has to wait. */
static bool __attribute__((noinline)) complex_message(struct ivs_ep *ep, struct ivs_peer *p, uint8_t op, uint8_t flags,
						      uint64_t tag, size_t len)
{
	uint64_t buf[(IVS_INLINE_MAX + 7) / 8];
	uint8_t *b = (uint8_t *) buf;
	const uint8_t *payload;
	struct ivs_bounce ref;
	size_t fixed = ivs_fixed_bytes(op, flags), skip = 0;
	uint64_t begin = 0;
	bool done;

	ivs_ring_get(&p->ring, 0, b, len);
	if (flags & IVS_F_BOUNCE)
		skip = sizeof(ref);
	if (!op || op >= IVS_OP_COUNT || len < skip + fixed ||
	    (flags & (IVS_F_NT | IVS_F_TIME) && !(flags & IVS_F_BOUNCE))) {
		broken(p, "a malformed message");
		return true;
	}
	payload = b + skip + fixed;
	len -= skip + fixed;
	if (skip) {
		memcpy(&ref, b, sizeof(ref));
		payload = ivs_bounced(ep->domain->region, p->slot, ref.page, 0, ref.len,
				      ep->domain->region->geo.bounce_bytes);
		if (!payload || len) {
			broken(p, "a message with a wrong bounce buffer");
			return true;
		}
		len = ref.len;
		ivs_ring_bounced(&p->ring, len);
	}
	if (flags & IVS_F_TIME)
		begin = ivs_cycles();
	done = ivs_receive(ep, p, op, flags & (uint8_t) ~(IVS_F_BOUNCE | IVS_F_NT | IVS_F_TIME), tag, b + skip, payload,
			   len);
	/* A message that was refused, or has ended its sender, is not a measurement. */
	if (flags & IVS_F_TIME && done && p->channel != IVS_CHAN_DEAD && len >= IVS_NT_MIN)
		ivs_nt_report(&p->ring.nt, p->ring.rx_ctl, flags, ivs_cycles() - begin, len);
	return done;
}

int ivs_ring_poll(struct ivs_ep *ep, struct ivs_peer *p)
{
	int done = 0;

	while (done < IVS_POLL_MAX) {
		struct nm_line *l = ivs_line_at(p->ring.rx_ring, p->ring.rx_head, p->ring.rx_mask);
		uint64_t word = __atomic_load_n((uint64_t *) (void *) l, __ATOMIC_ACQUIRE);
		uint8_t op, flags;
		uint16_t len;
		uint64_t tag;
		uint32_t lines;
		struct ivs_rx *rx;

		if ((uint32_t) word != ivs_lap_of(p->ring.rx_head, p->ring.rx_shift, p->ring.rx_lap0)) {
			break;
		}
		/* A program that does not read its completions gets no more of them. */
		if (unlikely(ivs_cq_count(ep->rx_cq) >= ep->rx_cq->size))
			break;
		op = (uint8_t) (word >> 32);
		flags = (uint8_t) (word >> 40);
		len = (uint16_t) (word >> 48);
		tag = *(volatile uint64_t *) &l->tag;
		if (unlikely(len > IVS_INLINE_MAX)) {
			broken(p, "a message longer than a ring's");
			break;
		}
		lines = ivs_lines_for(len);
		if (likely(op <= IVS_OP_MSG && op && !(flags & ~IVS_F_DATA) && (!flags || len >= 8))) {
			bool tagged = op == IVS_OP_TAGGED;
			size_t skip = flags ? 8 : 0, bytes = len - skip;

			rx = ivs_match_posted(ep, tagged ? &ep->tagged : &ep->msg, tagged, p, tag, bytes);
			if (likely(rx != NULL)) {
				uint64_t data = 0;

				if (flags)
					memcpy(&data, l->payload, 8);
				if (likely(rx->len >= bytes && rx->count == 1)) {
					uint8_t *dst = rx->iov[0].iov_base;

					if (likely(len <= NM_LINE_FIRST_BYTES))
						ivs_copy_small(dst, l->payload + skip, bytes);
					else
						ivs_ring_get(&p->ring, skip, dst, bytes);
				} else {
					uint8_t tmp[IVS_INLINE_MAX];

					ivs_ring_get(&p->ring, skip, tmp, bytes);
					ivs_iov_scatter(rx->iov, rx->count, 0, tmp, bytes);
				}
				ivs_rx_complete(ep, rx, tagged, p, bytes, tag, flags, data, 0);
			} else if (!complex_message(ep, p, op, flags, tag, len)) {
				break;
			}
		} else if (!complex_message(ep, p, op, flags, tag, len)) {
			break;
		}
		if (unlikely(p->channel == IVS_CHAN_DEAD))
			break;
		done++;
		/* Lines are freed in batches; a bounce buffer at once, because others wait for it. */
		ivs_ring_take(&p->ring, lines, flags & IVS_F_BOUNCE);
		ivs_ring_show(&p->ring);
	}
	return done;
}
