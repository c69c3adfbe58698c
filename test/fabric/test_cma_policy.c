/* The messages that a neighbour reads directly (fabric/proto/cma_policy.c). */
#include "../../fabric/proto/cma_policy.h"
#include "check.h"

#define UNKNOWN 0 /* the cost of copies is not known */

static struct ivs_cma_policy peer;

/* Sends count messages that need `copies` or `read` cycles. Returns how many were read. */
static int messages(int count, size_t len, uint64_t copies, uint64_t read)
{
	int direct = 0;

	while (count--)
		if (ivs_cma_policy_better(&peer, len, copies, true)) {
			direct++;
			if (read)
				ivs_cma_policy_took(&peer, len, read);
		}
	return direct;
}

int main(void)
{
	/* A single message is read, as before measuring existed, and so are messages behind others. */
	CHECK(ivs_cma_policy_better(&peer, 9000, UNKNOWN, true));
	CHECK(ivs_cma_policy_better(&peer, 9000, UNKNOWN, false));

	/* While the costs are unknown the ways alternate, but not forever. */
	CHECK(messages(1000, 8192, UNKNOWN, UNKNOWN) < 520);
	messages(2000, 8192, UNKNOWN, UNKNOWN);
	CHECK(messages(1000, 8192, UNKNOWN, UNKNOWN) > 990);

	/* Known costs decide, with one message of many to check whether they still hold. */
	messages(2000, 16384, 3000, 9000);
	CHECK(messages(1024, 16384, 3000, 9000) == 4);
	CHECK(!ivs_cma_policy_better(&peer, 16384, 3000, false));
	/* The ranks were moved: copies are slower, or reading is faster. */
	CHECK(messages(1024, 16384, 20000, 9000) > 1000);
	CHECK(messages(1024, 16384, 3000, 9000) < 10);
	messages(2048, 16384, 3000, 1000);
	CHECK(messages(1024, 16384, 3000, 1000) > 1000);

	/* Sizes are measured independently. */
	messages(2000, 200000, 9000, 3000);
	CHECK(messages(1024, 200000, 9000, 3000) > 1000);
	messages(2000, 40000, 3000, 9000);
	CHECK(messages(1024, 40000, 3000, 9000) == 4);
	CHECK(messages(1024, 200000, 9000, 3000) > 1000);

	/* Any length has a class. */
	for (size_t len = 0; len < IVS_CMA_POLICY_SURE; len = 3 * len + 1)
		messages(10, len, 100, 100);
	messages(10, SIZE_MAX, 100, 100);
	return 0;
}
