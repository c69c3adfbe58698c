/*
 * A copy into a bounce buffer fetches each of its lines from the cache of the receiver, which has read the buffer's
 * last piece. Between cores that share a cache nothing is faster. Between others, such as two CCXs or two sockets, a
 * non-temporal copy is: the line is written to memory and read from there. Such a copy reaches 15 GB/s instead of 7,
 * and halves the time of a message of 64 KiB (Zen 3; between two threads of a core 15 instead of 31). The topology does
 * not show which case applies: a VM may not see it, and may move. Therefore the copies themselves are timed, for each
 * receiver, at both ends: the receiver may pay for the time that the sender saves.
 */
#include "base/cycles.h"
#include "base/param.h"
#include "base/message.h"
#include "ring/nontemporal.h"
#include "tune.h"

/* Compares the two ways, if both ends have timed both. */
static void compare(struct ivs_nt *nt, const struct ivs_adapt_rate *rate, const struct nm_ring_ctl *ctl)
{
	uint64_t sum[2];
	uint32_t write, read;
	int way;

	for (way = 0; way < 2; way++) {
		write = ivs_cost_least(&nt->write[way]);
		read = __atomic_load_n(&ctl->cost[way], __ATOMIC_RELAXED);
		if (!write || !read)
			return;
		sum[way] = (uint64_t) write + read;
	}
	ivs_adapt_compare(&nt->way, rate, sum[0], sum[1]);
}

static void copy(bool nontemporal, void *dst, const void *src, size_t len)
{
	if (nontemporal)
		ivs_copy_nt(dst, src, len);
	else
		ivs_copy(dst, src, len);
}

uint8_t ivs_nt_copy(struct ivs_nt *nt, const struct nm_ring_ctl *ctl, void *dst, const void *src, size_t len,
		    bool fresh)
{
	const struct ivs_adapt_rate rate = {
		.learn = IVS_ADAPT_LEARN,
		.probe = IVS_NT_PROBE,
		.margin = IVS_NT_MARGIN,
	};
	uint64_t begin;
	bool way;

	if (fresh || !ivs_nt_timed()) {
		ivs_copy(dst, src, len);
		return 0;
	}
	if (nt->way.turn >= IVS_ADAPT_LEARN && nt->way.turn % (IVS_NT_PROBE / 2)) {
		nt->way.turn++;
		copy(nt->way.on, dst, src, len);
		return nt->way.on ? IVS_F_NT : 0;
	}
	compare(nt, &rate, ctl);
	way = ivs_adapt_next(&nt->way, &rate, true) && ivs_param.nt;
	begin = ivs_cycles();
	copy(way, dst, src, len);
	ivs_cost_add(&nt->write[way], ivs_cycles() - begin, len);
	return (way ? IVS_F_NT : 0) | IVS_F_TIME;
}

void ivs_nt_report(struct ivs_nt *nt, struct nm_ring_ctl *ctl, uint8_t flags, uint64_t cycles, size_t len)
{
	int way = flags & IVS_F_NT ? 1 : 0;

	ivs_cost_add(&nt->read[way], cycles, len);
	__atomic_store_n(&ctl->cost[way], ivs_cost_least(&nt->read[way]), __ATOMIC_RELAXED);
}

uint64_t ivs_nt_cycles(const struct ivs_nt *nt, const struct nm_ring_ctl *ctl, size_t len, size_t piece)
{
	uint64_t write = ivs_cost_least(&nt->write[nt->way.on]);
	uint64_t read = __atomic_load_n(&ctl->cost[nt->way.on], __ATOMIC_RELAXED);
	uint64_t more = write > read ? write : read, less = write > read ? read : write;

	/* The slower end sets the pace; a fifth is added for the work between the copies. */
	return write && read ? (more * len + less * (piece < len ? piece : len)) / 1024 * 6 / 5 : 0;
}
