/*
 * The work of a message: both of its ends in one thread on one core. What two cores measure moves with
 * where the host puts them; this does not, and so it shows a difference of a percent.
 */
#include "over.h"

#include <stdlib.h>
#include <string.h>

#include "pair.h"

#define WORK_COUNTED  100 /* messages each way that count() counts, and as many before them */
#define WORK_SLICES   15
#define WORK_SLICE_US 2000

static struct side ends[2];
static fi_addr_t to[2];	  /* of ends[i]: the other one's address */
static uint8_t *out, *in; /* METER_LARGEST each */

static int completions(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(cq, &e, 1);

	if (n < 0 && n != -FI_EAGAIN)
		die("completion", n);
	return n > 0;
}

/* One message from ends[from] to the other, which waits for it. */
static void message(int from, size_t len)
{
	static struct fi_context2 sent, received;
	struct side *a = &ends[from], *b = &ends[!from];
	bool inject = len <= a->inject;
	int sends = !inject, receives = 1;
	ssize_t n;

	while ((n = fi_trecv(b->ep, in, len, NULL, to[!from], 1, 0, &received)) == -FI_EAGAIN)
		fi_cq_read(b->rx_cq, NULL, 0);
	if (n)
		die("fi_trecv", n);
	while ((n = inject ? fi_tinject(a->ep, out, len, to[from], 1)
			   : fi_tsend(a->ep, out, len, NULL, to[from], 1, &sent)) == -FI_EAGAIN) {
		fi_cq_read(a->rx_cq, NULL, 0);
		fi_cq_read(b->rx_cq, NULL, 0);
	}
	if (n)
		die("fi_tsend", n);
	while (sends || receives) {
		if (receives)
			receives -= completions(b->rx_cq);
		if (sends)
			sends -= completions(a->tx_cq);
	}
}

/* Time in us of count messages each way. */
static double messages(size_t len, long count)
{
	double t = meter_now();

	for (long i = 0; i < count; i++) {
		message(0, len);
		message(1, len);
	}
	return meter_now() - t;
}

static void open_ends(const char *provider)
{
	uint8_t addr[2][128];

	out = aligned_alloc(4096, METER_LARGEST);
	in = aligned_alloc(4096, METER_LARGEST);
	if (!out || !in)
		die("memory", FI_ENOMEM);
	memset(out, 1, METER_LARGEST);
	memset(in, 2, METER_LARGEST);
	for (int i = 0; i < 2; i++) {
		side_open(&ends[i], provider, FI_TAGGED | FI_DIRECTED_RECV);
		side_endpoint(&ends[i]);
		side_name(&ends[i], addr[i]);
	}
	for (int i = 0; i < 2; i++)
		to[i] = side_insert(&ends[i], addr[!i]);
}

static void close_ends(void)
{
	for (int i = 0; i < 2; i++) {
		side_close_endpoint(&ends[i]);
		side_close(&ends[i]);
	}
	free(out);
	free(in);
}

/* By this name callgrind knows what to count. */
void __attribute__((noinline)) work_counted(size_t len)
{
	messages(len, WORK_COUNTED);
}

void count(const char *provider, size_t len)
{
	if (len > METER_LARGEST)
		die("count", FI_EMSGSIZE);
	open_ends(provider);
	messages(len, WORK_COUNTED);
	work_counted(len);
	meter_print("counted", len, 2 * WORK_COUNTED);
	close_ends();
}

void work(const char *provider)
{
	double each[WORK_SLICES];

	open_ends(provider);
	meter_realtime();
	for (int s = 0; s < meter_latency_count; s++) {
		size_t len = meter_latency_sizes[s];
		long first = len <= 65536 ? 50 : 5, count;

		messages(len, first);
		count = meter_count(messages(len, first), first, WORK_SLICE_US, 1);
		for (int i = 0; i < WORK_SLICES; i++)
			each[i] = messages(len, count) / (double) (2 * count);
		meter_print("work", len, meter_median(each, WORK_SLICES));
	}
	close_ends();
}
