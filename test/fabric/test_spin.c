/*
 * When a rank spins for a reply within one call (fabric/ring/spin.h), and when it pauses polling a ring (ivs_pace() of
 * ring.h).
 */
#include "../../fabric/ring/spin.h"
#include "check.h"

#define LINES 16

static _Alignas(64) uint8_t lines[LINES * NM_LAYOUT_LINE];
static struct ivs_ring peer = { .rx_ring = lines, .rx_mask = LINES - 1, .rx_shift = 4 };

/* Sends to the peer. Returns in how many calls, of the maximum, the reply was spun for. */
static int waits(void)
{
	int polls, n = 0;

	peer.tx_head += 2;
	for (polls = 0; polls < 2 * IVS_SPIN_POLLS; polls++) {
		uint8_t before = peer.spin_polls;
		bool fresh = peer.spin_head != peer.tx_head;

		CHECK(!ivs_spin(&peer));
		n += fresh ? peer.spin_polls > 0 : peer.spin_polls < before;
	}
	return n;
}

/* Returns the word of the line with which the peer's next message begins. */
static uint32_t *next(void)
{
	return (uint32_t *) (void *) ivs_line_at(lines, peer.rx_head, peer.rx_mask);
}

/* The peer answers: its message is found by the next poll, and consumed. */
static void answers(void)
{
	peer.tx_head += 2;
	*next() = ivs_lap_of(peer.rx_head, peer.rx_shift, peer.rx_lap0);
	CHECK(ivs_spin(&peer));
	peer.rx_head += 2;
	ivs_pace(&peer, 1);
}

/*
 * A stream of messages with bounce buffers: polling pauses for longer, but not at a rank that sends to others in
 * between.
 */
static void paces(void)
{
	static struct ivs_home home;
	struct ivs_ring from = { .home = &home };
	uint64_t begin;
	int n;

	for (n = 1; n < IVS_RUN_LENGTH; n++) {
		from.came_long = true;
		ivs_pace(&from, 1);
		CHECK(!from.quiet_until);
	}
	begin = ivs_cycles();
	ivs_pace(&from, 1);
	CHECK(from.quiet_until >= begin + IVS_QUIET_LONG_CYCLES && !from.came_long);
	CHECK(ivs_quiet_long(&from) == IVS_QUIET_LONG_CYCLES);
	home.bounced++;
	CHECK(ivs_quiet_long(&from) == IVS_QUIET_CYCLES);
	CHECK(ivs_quiet_long(&from) == IVS_QUIET_LONG_CYCLES);
	/* A reply of this rank ends the stream. */
	from.tx_head++;
	from.came_long = true;
	from.quiet_until = 0;
	ivs_pace(&from, IVS_RUN_LENGTH);
	CHECK(!from.quiet_until && !from.came_long);
}

int main(void)
{
	int i, n;

	ivs_cpu_relax_init();
	paces();
	for (i = 0; i < 2; i++) {
		/* Nothing was sent, so nothing is waited for: the next poll finds the message. */
		*next() = ivs_lap_of(peer.rx_head, peer.rx_shift, peer.rx_lap0);
		CHECK(!ivs_spin(&peer));
		*next() = 0;
		for (n = 0; n < 100; n++)
			answers();
		CHECK(!ivs_spin(&peer));
		/* A peer that does not answer is waited for in a bounded time, and soon only now and then. */
		for (n = 0; n < IVS_SPIN_MISSES; n++)
			CHECK(waits() == IVS_SPIN_POLLS / IVS_SPIN_CALL);
		for (n = 0; n < IVS_SPIN_PROBE; n++)
			CHECK(waits() == (n == IVS_SPIN_PROBE - 1 ? IVS_SPIN_POLLS / IVS_SPIN_CALL : 0));
		for (n = 0; n < IVS_SPIN_PROBE - 1; n++)
			CHECK(!waits());
		/* Until it answers a message that is spun for: the 16th is. */
		answers();
		/* The same with the other kind of pause. */
		ivs_pause_is_short = !ivs_pause_is_short;
	}
	return 0;
}
