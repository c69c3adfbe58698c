/* How copies into bounce buffers are made (fabric/ring/nontemporal.c), with copies whose duration the test sets. */
#include "../../fabric/ring/nontemporal.h"
#include "../../fabric/base/cycles.h"
#include "../../fabric/base/param.h"
#include "../../fabric/base/message.h"
#include "check.h"

#define SLOW   40000 /* cycles for 8 KiB */
#define FAST   4000
#define ENOUGH 2000 /* copies after which a choice is made */

struct ivs_param ivs_param = { .nt = 1 };

static uint64_t takes[2];
static int made[2];

static void spin(int way)
{
	uint64_t end = ivs_cycles() + takes[way];

	made[way]++;
	while ((int64_t) (ivs_cycles() - end) < 0)
		;
}

static void cached(void *dst, const void *src, size_t len)
{
	(void) dst, (void) src, (void) len;
	spin(0);
}

static void nontemporal(void *dst, const void *src, size_t len)
{
	(void) dst, (void) src, (void) len;
	spin(1);
}

void (*ivs_copy_large)(void *dst, const void *src, size_t len) = cached;
void (*ivs_copy_nt)(void *dst, const void *src, size_t len) = nontemporal;

static struct nm_ring_ctl ctl;
static struct ivs_nt sender, receiver;

/* Copies 8 KiB, with this many cycles for reading them, cached and non-temporally. */
static void one(uint64_t read0, uint64_t read1)
{
	static uint8_t memory[2][8192];
	uint8_t flags = ivs_nt_copy(&sender, &ctl, memory[0], memory[1], 8192, false);

	CHECK(!(flags & ~(IVS_F_NT | IVS_F_TIME)));
	if (flags & IVS_F_TIME)
		ivs_nt_report(&receiver, &ctl, flags, flags & IVS_F_NT ? read1 : read0, 8192);
}

/* Copies that many pieces. */
static void pieces(int count, uint64_t read0, uint64_t read1)
{
	made[0] = made[1] = 0;
	while (count--)
		one(read0, read1);
}

static void times(uint64_t t0, uint64_t t1)
{
	takes[0] = t0;
	takes[1] = t1;
}

/* Checks that almost all copies are made in this way, and some in the other. */
static void goes(int way)
{
	CHECK(made[way] > 20 * made[!way]);
	CHECK(made[!way] > 0);
}

/*
 * Lets the caller make the plain copies (ivs_nt_plain): returns how many of count. All others are made, and timed, as
 * usual.
 */
static int elsewhere(int count, uint64_t read0, uint64_t read1)
{
	int done = 0;

	made[0] = made[1] = 0;
	while (count--) {
		uint32_t turn = sender.way.turn;
		int before[2] = { made[0], made[1] };

		if (ivs_nt_plain(&sender)) {
			CHECK(!sender.way.on && sender.way.turn == turn + 1);
			done++;
		} else {
			CHECK(sender.way.turn == turn);
			one(read0, read1);
			CHECK(made[0] + made[1] == before[0] + before[1] + 1);
		}
	}
	return done;
}

int main(void)
{
	static uint8_t byte[8192];

	/* A copy to new memory is not measured. */
	times(FAST, FAST);
	CHECK(!ivs_nt_copy(&sender, &ctl, byte, byte, sizeof(byte), true));
	CHECK(!sender.way.turn && made[0] == 1);

	/* Nothing is known, or the receiver reports no timing: cached copies. */
	times(SLOW, FAST);
	for (int i = 0; i < 300; i++)
		ivs_nt_copy(&sender, &ctl, byte, byte, sizeof(byte), false);
	CHECK(!sender.way.on);

	/* The sender saves time, at no cost to the receiver. */
	pieces(ENOUGH, FAST, FAST);
	CHECK(sender.way.on);
	pieces(ENOUGH, FAST, FAST);
	goes(1);
	/* The receiver pays for it. */
	pieces(ENOUGH, FAST, 4 * SLOW);
	CHECK(!sender.way.on);
	pieces(ENOUGH, FAST, 4 * SLOW);
	goes(0);
	/* The receiver gains. */
	times(FAST, FAST);
	pieces(ENOUGH, 4 * SLOW, FAST);
	CHECK(sender.way.on);
	/* Equal, or nearly: the way does not change. */
	pieces(ENOUGH, FAST, FAST);
	CHECK(sender.way.on);
	/* The ranks were moved together. */
	times(FAST, SLOW);
	pieces(ENOUGH, FAST, FAST);
	CHECK(!sender.way.on);
	pieces(ENOUGH, FAST, FAST);
	goes(0);

	/* The caller makes most copies, and those timed still show in time that another way is faster, and back. */
	CHECK(elsewhere(ENOUGH, FAST, FAST) > ENOUGH / 2);
	times(SLOW, FAST);
	elsewhere(ENOUGH, FAST, FAST);
	CHECK(sender.way.on);
	CHECK(!elsewhere(ENOUGH, FAST, FAST));
	times(FAST, SLOW);
	elsewhere(ENOUGH, FAST, FAST);
	CHECK(!sender.way.on);

	/* Any value that a receiver writes there changes at most the way. */
	ctl.cost[0] = UINT32_MAX;
	ctl.cost[1] = 1;
	for (int i = 0; i < 300; i++)
		ivs_nt_copy(&sender, &ctl, byte, byte, sizeof(byte), false);
	CHECK(sender.way.on);

	/* Turned off, the way is never used; or this CPU does not have it. */
	ivs_param.nt = 0;
	memset(&sender, 0, sizeof(sender));
	pieces(ENOUGH, FAST, FAST);
	CHECK(!made[1] && made[0] == ENOUGH);
	CHECK(ivs_nt_cycles(&sender, &ctl, 65536, 8192));
	ivs_param.nt = 1;
	ivs_copy_nt = NULL;
	CHECK(!ivs_nt_copy(&sender, &ctl, byte, byte, sizeof(byte), false));
	CHECK(ivs_nt_plain(&sender));
	return 0;
}
