/* Long messages through bounce buffers, without reading the sender's memory. */
#include "lists.h"

enum { ROW = 40, LARGEST = 128 << 10 | 40 * 33333 };

static size_t row_bytes(int i)
{
	return i % 5 == 4 ? 16000 : (128U << 10) + (size_t) i * 33333;
}

static void alone(struct ctx *c, char *buf)
{
	for (int i = 0; i < 2 * ROW; i++) {
		if (c->rank == 0) {
			RETRY(c, fi_tsend(c->ep, buf, LARGEST, NULL, c->peer[1], 1, NULL));
			wait_comp(c, c->txcq);
		} else {
			OK(fi_trecv(c->ep, buf, LARGEST, NULL, c->peer[0], 1, 0, NULL));
			wait_comp(c, c->rxcq);
		}
		barrier(c);
	}
}

static void row(struct ctx *c, char *buf[], bool unexpected)
{
	if (unexpected && c->rank == 0)
		barrier(c);
	for (int i = 0; i < ROW; i++)
		if (c->rank == 0)
			RETRY(c, fi_tsend(c->ep, buf[i], row_bytes(i), NULL, c->peer[1], (uint64_t) i, NULL));
		else if (!unexpected)
			OK(fi_trecv(c->ep, buf[i], row_bytes(i), NULL, c->peer[0], (uint64_t) i, 0, NULL));
	if (unexpected && c->rank) {
		barrier(c);
		for (int i = ROW; i--;)
			OK(fi_trecv(c->ep, buf[i], row_bytes(i), NULL, c->peer[0], (uint64_t) i, 0, NULL));
	}
	for (int i = 0; i < ROW; i++)
		wait_comp(c, c->rank ? c->rxcq : c->txcq);
	barrier(c);
}

/* Messages one by one and in streams, with their receives posted before or after them, arrive. */
static void long_rows(struct ctx *c)
{
	char *buf[ROW], *one = calloc(1, LARGEST);

	CHECK(one);
	fill(one, LARGEST, 9);
	for (int i = 0; i < ROW; i++) {
		buf[i] = calloc(1, row_bytes(i));
		CHECK(buf[i]);
		if (c->rank == 0)
			fill(buf[i], row_bytes(i), (unsigned int) i);
	}
	alone(c, one);
	for (int round = 0; round < 4; round++) {
		row(c, buf, round & 1);
		for (int i = 0; c->rank && i < ROW; i++) {
			CHECK(filled(buf[i], row_bytes(i), (unsigned int) i));
			memset(buf[i], 0, row_bytes(i));
		}
	}
	for (int i = 0; i < ROW; i++)
		free(buf[i]);
	free(one);
}

#define NO_CMA "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_RANKS=16"

const struct test test_bounce[] = {
	{ "long_rows", 2, long_rows, .env = { NO_CMA } },
	/* The region has room for 32 pieces of 16 KiB, and the other pieces wait. */
	{ "long_rows_small", 2, long_rows, .env = { NO_CMA, "FI_IVSHMEM_REGION_SIZE=16777216" } },
	{ "long_rows_delivery", 2, long_rows, .env = { NO_CMA }, .setup = { .tx_op_flags = FI_DELIVERY_COMPLETE } },
	{ 0 }
};
