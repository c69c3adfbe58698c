/*
 * fabric_choice: what it costs, in ns, to find out how a message goes to its peer: from
 * an address to one of the channels, for 1,024 peers in random order, less what the loop
 * itself and the table's cache misses cost.
 */
#include <stdio.h>

#include "../../../../fabric/proto/proto.h"
#include "meter.h"

#define PEERS  1024
#define ROUNDS 64

static struct ivs_ep ep;
static uint16_t order[PEERS * 16];
static volatile uint64_t sink;

/* The addition alone, of what was found beforehand. */
static uint64_t __attribute__((noinline)) known(struct ivs_peer *const *found, long rounds)
{
	uint64_t sum = 0;

	for (long r = 0; r < rounds; r++)
		for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
			sum += found[order[i]]->piece;
	return sum;
}

static uint64_t __attribute__((noinline)) chosen(long rounds)
{
	uint64_t sum = 0;
	int err;

	for (long r = 0; r < rounds; r++)
		for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
			struct ivs_peer *p = ivs_peer_get(&ep, order[i], &err);

			if (!p)
				continue;
			if (p->channel == IVS_CHAN_RING)
				sum += p->piece; /* the region, or CMA when it is large */
			else
				sum += p->piece + 1; /* the core provider */
		}
	return sum;
}

int main(void)
{
	static struct ivs_peer *found[PEERS];
	double a[METER_SLICES], b[METER_SLICES], t, calls = ROUNDS * (double) (PEERS * 16);
	uint32_t seed = 1;

	ep.peers = found;
	ep.peers_size = PEERS;
	for (int i = 0; i < PEERS; i++) {
		found[i] = aligned_alloc(64, (sizeof(**found) + 63) / 64 * 64);
		if (!found[i])
			return 1;
		memset(found[i], 0, sizeof(**found));
		/* Three of four peers are on this host. */
		found[i]->channel = i % 4 ? IVS_CHAN_RING : IVS_CHAN_CORE;
		found[i]->piece = IVS_BOUNCE;
	}
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		seed = seed * 1664525 + 1013904223;
		order[i] = (uint16_t) (seed >> 16 & (PEERS - 1));
	}
	meter_pin(0);
	meter_realtime();
	for (int s = 0; s < METER_SLICES; s++) {
		t = meter_now();
		sink = known(found, ROUNDS);
		a[s] = (meter_now() - t) / calls * 1e3;
		t = meter_now();
		sink = chosen(ROUNDS);
		b[s] = (meter_now() - t) / calls * 1e3;
	}
	t = meter_median(b, METER_SLICES) - meter_median(a, METER_SLICES);
	meter_print("choice", 0, t > 0 ? t : 0);
	return 0;
}
