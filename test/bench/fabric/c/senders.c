/*
 * A receiver with many senders that are not idle: the price of polling several rings. All ends are in
 * one thread on one core, as in work.c, so that it does not move with where the host puts two.
 */
#include <stdlib.h>
#include <string.h>

#include "over.h"
#include "pair.h"

#define SENDERS_MAX	 32
#define SENDERS_SLICES	 15
#define SENDERS_SLICE_US 2000

static struct side sender[SENDERS_MAX], receiver;
static fi_addr_t to;

/* One message of 8 bytes from sender i, and the reading of it. */
static void message(int i)
{
	static struct fi_context2 received;
	struct fi_cq_tagged_entry e;
	uint64_t out = 1, in;
	ssize_t n;

	while ((n = fi_trecv(receiver.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &received)) == -FI_EAGAIN)
		fi_cq_read(receiver.rx_cq, NULL, 0);
	if (n)
		die("fi_trecv", n);
	while ((n = fi_tinject(sender[i].ep, &out, sizeof(out), to, 1)) == -FI_EAGAIN) {
		fi_cq_read(sender[i].rx_cq, NULL, 0);
		fi_cq_read(receiver.rx_cq, NULL, 0);
	}
	if (n)
		die("fi_tinject", n);
	while ((n = fi_cq_read(receiver.rx_cq, &e, 1)) == -FI_EAGAIN)
		;
	if (n < 0)
		die("completion", n);
}

/* Time in us of count messages, of the first `senders` in turns. */
static double messages(int senders, long count)
{
	double t = meter_now();

	for (long i = 0; i < count; i++)
		message((int) (i % senders));
	return meter_now() - t;
}

void senders(const char *provider)
{
	static const int counts[] = { 1, 4, 8, 12, 16, 32 };
	double each[SENDERS_SLICES];
	uint8_t addr[128];

	side_open(&receiver, provider, FI_TAGGED | FI_DIRECTED_RECV);
	side_endpoint(&receiver);
	side_name(&receiver, addr);
	for (int i = 0; i < SENDERS_MAX; i++) {
		uint8_t own[128];

		side_open(&sender[i], provider, FI_TAGGED | FI_DIRECTED_RECV);
		side_endpoint(&sender[i]);
		side_name(&sender[i], own);
		to = side_insert(&sender[i], addr);
		side_insert(&receiver, own);
	}
	meter_realtime();
	for (size_t s = 0; s < sizeof(counts) / sizeof(counts[0]); s++) {
		long count;

		messages(counts[s], 20000);
		count = meter_count(messages(counts[s], 200), 200, SENDERS_SLICE_US, 1);
		for (int i = 0; i < SENDERS_SLICES; i++)
			each[i] = messages(counts[s], count) / (double) count;
		meter_print("work", (size_t) counts[s], meter_median(each, SENDERS_SLICES));
	}
	for (int i = 0; i < SENDERS_MAX; i++) {
		side_close_endpoint(&sender[i]);
		side_close(&sender[i]);
	}
	side_close_endpoint(&receiver);
	side_close(&receiver);
}
