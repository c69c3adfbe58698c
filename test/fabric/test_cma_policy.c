/* Which messages a neighbour reads directly (fabric/proto/cma_policy.c). */
#include "../../fabric/proto/cma_policy.h"
#include "check.h"

#define UNKNOWN 0 /* what copies take */

static struct ivs_cma_policy peer;

/* Sends count messages that take `copies` or `read` cycles. Returns how many were read. */
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
	/* A single message of a kind is read, as it always was, and so are those behind others. */
	CHECK(ivs_cma_policy_better(&peer, 9000, UNKNOWN, true));
	CHECK(ivs_cma_policy_better(&peer, 9000, UNKNOWN, false));

	/* While nobody knows they go by turns, but not for ever. */
	CHECK(messages(1000, 8192, UNKNOWN, UNKNOWN) < 520);
	messages(2000, 8192, UNKNOWN, UNKNOWN);
	CHECK(messages(1000, 8192, UNKNOWN, UNKNOWN) > 990);

	/* What is known counts, with one of many to see whether it still is so. */
	messages(2000, 16384, 3000, 9000);
	CHECK(messages(1024, 16384, 3000, 9000) == 4);
	CHECK(!ivs_cma_policy_better(&peer, 16384, 3000, false));
	/* The ranks were moved: copies take longer, or reading less. */
	CHECK(messages(1024, 16384, 20000, 9000) > 1000);
	CHECK(messages(1024, 16384, 3000, 9000) < 10);
	messages(2048, 16384, 3000, 1000);
	CHECK(messages(1024, 16384, 3000, 1000) > 1000);

	/* Sizes do not tell of each other. */
	messages(2000, 200000, 9000, 3000);
	CHECK(messages(1024, 200000, 9000, 3000) > 1000);
	messages(2000, 40000, 3000, 9000);
	CHECK(messages(1024, 40000, 3000, 9000) == 4);
	CHECK(messages(1024, 200000, 9000, 3000) > 1000);

	/* Any length finds its place. */
	for (size_t len = 0; len < IVS_CMA_POLICY_SURE; len = 3 * len + 1)
		messages(10, len, 100, 100);
	messages(10, SIZE_MAX, 100, 100);
	return 0;
}
