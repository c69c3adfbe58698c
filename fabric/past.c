/*
 * A piece of a message that is copied into a chunk takes each line of it from where it was last: from
 * the cache of the receiver, who has read the chunk's last use. Between cores that share a cache that
 * is the fastest way there is. Where they share none, as two CCX or two sockets do not, fetching a line
 * takes longer than to write it to memory and to read it there: 7 to 15 GB/s, and half of the
 * time of a message of 64 KiB (measured on Zen 3; between two threads of a core 31 and 15 GB/s).
 * Which of the two it is cannot be looked up, since a VM need not be told and need not stay where
 * it is. So it is measured, for each receiver, by the copies themselves, at both ends: what the sender
 * saves by leaving its cache out the receiver may have to pay.
 */
#include "past.h"
#include "proto.h"

#define LEARN	16	/* copies, by turns in either way, before others */
#define PROBE	64	/* then of so many two are measured, one in each way */

/* The other way has to be an eighth faster, so that they do not alternate. */
static bool choose(const struct ivs_past *past, const struct nm_ring_ctl *ctl)
{
	uint64_t sum[2];
	uint32_t write, read;
	int way;

	for (way = 0; way < 2; way++) {
		write = ivs_cost_least(&past->write[way]);
		read = __atomic_load_n(&ctl->cost[way], __ATOMIC_RELAXED);
		if (!write || !read)
			return past->on;
		sum[way] = (uint64_t) write + read;
	}
	return past->on ? sum[1] * 7 < sum[0] * 8 : sum[1] * 8 < sum[0] * 7;
}

static void copy(bool past, void *dst, const void *src, size_t len)
{
	if (past)
		ivs_copy_past(dst, src, len);
	else
		ivs_copy(dst, src, len);
}

uint8_t ivs_past_copy(struct ivs_past *past, const struct nm_ring_ctl *ctl, void *dst,
		      const void *src, size_t len, bool fresh)
{
	uint32_t turn;
	uint64_t begin;
	bool way;

	if (fresh || !ivs_past_timed()) {
		ivs_copy(dst, src, len);
		return 0;
	}
	turn = past->turn++;
	if (turn >= LEARN && turn % (PROBE / 2)) {
		copy(past->on, dst, src, len);
		return past->on ? IVS_F_PAST : 0;
	}
	past->on = choose(past, ctl);
	way = ivs_param.past && (turn < LEARN ? turn % 2 : past->on != !(turn % PROBE));
	begin = ivs_cycles();
	copy(way, dst, src, len);
	ivs_cost_add(&past->write[way], ivs_cycles() - begin, len);
	return (way ? IVS_F_PAST : 0) | IVS_F_TELL;
}

void ivs_past_tell(struct ivs_past *past, struct nm_ring_ctl *ctl, uint8_t flags, uint64_t cycles,
		   size_t len)
{
	int way = flags & IVS_F_PAST ? 1 : 0;

	ivs_cost_add(&past->read[way], cycles, len);
	__atomic_store_n(&ctl->cost[way], ivs_cost_least(&past->read[way]), __ATOMIC_RELAXED);
}

uint64_t ivs_past_cycles(const struct ivs_past *past, const struct nm_ring_ctl *ctl, size_t len,
			 size_t piece)
{
	uint64_t write = ivs_cost_least(&past->write[past->on]);
	uint64_t read = __atomic_load_n(&ctl->cost[past->on], __ATOMIC_RELAXED);
	uint64_t more = write > read ? write : read, less = write > read ? read : write;

	/* The slower end sets the pace; a fifth is for what is between the copies. */
	return write && read ? (more * len + less * (piece < len ? piece : len)) / 1024 * 6 / 5 : 0;
}
