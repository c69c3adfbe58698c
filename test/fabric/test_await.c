/* When a rank waits for an answer within one look (fabric/await.h). */
#include "../../fabric/await.h"
#include "check.h"

#define LINES	16

static _Alignas(64) uint8_t lines[LINES * NM_LAYOUT_LINE];
static struct ivs_peer peer = { .rx_ring = lines, .rx_mask = LINES - 1, .rx_shift = 4 };

/* Sends something to it; gives how often it was waited for, out of as many looks as one may take. */
static int waits(void)
{
	int looks, n = 0;

	peer.tx_head += 2;
	for (looks = 0; looks < 2 * IVS_AWAIT_LOOKS; looks++) {
		uint8_t before = peer.await_looks;
		bool fresh = peer.await_head != peer.tx_head;

		CHECK(!ivs_await(&peer));
		n += fresh ? peer.await_looks > 0 : peer.await_looks < before;
	}
	return n;
}

/* The word of the line that its next message begins with. */
static uint32_t *next(void)
{
	return (uint32_t *) (void *) ivs_line_at(lines, peer.rx_head, peer.rx_mask);
}

/* The peer answers: its message is there at the next look, and is taken. */
static void answers(void)
{
	peer.tx_head += 2;
	*next() = ivs_lap_of(peer.rx_head, peer.rx_shift, peer.rx_lap0);
	CHECK(ivs_await(&peer));
	peer.rx_head += 2;
	ivs_pace(&peer, 1);
}

int main(void)
{
	int i, n;

	ivs_rest_init();
	for (i = 0; i < 2; i++) {
		/* Nothing was sent, nothing is waited for: the next look finds what has come. */
		*next() = ivs_lap_of(peer.rx_head, peer.rx_shift, peer.rx_lap0);
		CHECK(!ivs_await(&peer));
		*next() = 0;
		for (n = 0; n < 100; n++)
			answers();
		CHECK(!ivs_await(&peer));
		/* One who does not answer is waited for a bounded time, and soon only now and then. */
		for (n = 0; n < IVS_AWAIT_MISSES; n++)
			CHECK(waits() == IVS_AWAIT_LOOKS / IVS_AWAIT_CALL);
		for (n = 0; n < IVS_AWAIT_PROBE; n++)
			CHECK(waits() == (n == IVS_AWAIT_PROBE - 1 ? IVS_AWAIT_LOOKS / IVS_AWAIT_CALL : 0));
		for (n = 0; n < IVS_AWAIT_PROBE - 1; n++)
			CHECK(!waits());
		/* Until it answers while it is waited for: the 16th is. */
		answers();
		/* The same with the other kind of rest. */
		ivs_pause_is_short = !ivs_pause_is_short;
	}
	return 0;
}
