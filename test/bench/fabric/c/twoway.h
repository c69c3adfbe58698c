/*
 * Latency, bandwidth and message rate between ranks 0 and 1, by OSU's method. Whoever
 * includes this defines, all static:
 *
 *	int rank;				0 or 1
 *	void tw_send(const void *, size_t);	and when it returns, the buffer is free
 *	void tw_recv(void *, size_t);
 *	void tw_send_window(const void *, size_t, int count);	as many in a row
 *	void tw_recv_window(void *, size_t, int count);
 *	void tw_meet(void);			both have come here; what is under way goes on meanwhile
 *	long tw_agree(long);			rank 0's value on both
 *
 * Figures: latency (us), rate (million messages/s), bandwidth (GB/s), all with buffers at a
 * page's start, and bandwidth+16 (GB/s), with both buffers 16 bytes after a page's start, as
 * malloc hands out large ones.
 */
#include "meter.h"

static void tw_pingpongs(uint8_t *out, uint8_t *in, size_t len, long count)
{
	for (long i = 0; i < count; i++) {
		if (rank == 0) {
			tw_send(out, len);
			tw_recv(in, len);
		} else {
			tw_recv(in, len);
			tw_send(out, len);
		}
	}
}

static void tw_windows(uint8_t *out, uint8_t *in, size_t len, long count)
{
	int window = meter_window(len);

	for (long i = 0; i < count; i++) {
		if (rank == 0) {
			tw_send_window(out, len, window);
			tw_recv(in, 4);
		} else {
			tw_recv_window(in, len, window);
			tw_send(out, 4);
		}
	}
}

/* Time in us of one turn: the median of the slices. */
static double tw_measure(void (*turn)(uint8_t *, uint8_t *, size_t, long), uint8_t *out, uint8_t *in, size_t len,
			 long first, double slice_us)
{
	double t, each[METER_SLICES];
	long count;

	tw_meet();
	turn(out, in, len, first);
	tw_meet();
	t = meter_now();
	turn(out, in, len, first);
	count = tw_agree(meter_count(meter_now() - t, first, slice_us, 1));
	for (int s = 0; s < METER_SLICES; s++) {
		tw_meet();
		t = meter_now();
		turn(out, in, len, count);
		each[s] = (meter_now() - t) / (double) count;
	}
	/* Nobody turns to another endpoint while the other one still needs answers from this one. */
	tw_meet();
	return meter_median(each, METER_SLICES);
}

/* Half a round trip in us. */
static double tw_latency_us(uint8_t *out, uint8_t *in, size_t len)
{
	return tw_measure(tw_pingpongs, out, in, len, len <= 65536 ? 50 : 5, 3000) / 2;
}

/* Bytes in ns, that is GB/s, or messages in us, that is millions/s, of messages sent in a row. */
static double tw_stream_of(double each, uint8_t *out, uint8_t *in, size_t len)
{
	return meter_window(len) * each / tw_measure(tw_windows, out, in, len, 1, 6000);
}

/* The i'th of all figures: its name, the messages' bytes and its value. false: there are no more. */
static inline bool tw_figure(int i, uint8_t *out, uint8_t *in, const char **what, size_t *len, double *value)
{
	static const size_t shifted[] = { 8192, 65536, 1048576 };

	if (i < meter_latency_count) {
		*what = "latency";
		*len = meter_latency_sizes[i];
		*value = tw_latency_us(out, in, *len);
		return true;
	}
	i -= meter_latency_count;
	if (!i) {
		*what = "rate";
		*len = 8;
		*value = tw_stream_of(1, out, in, *len);
		return true;
	}
	if (--i < meter_bandwidth_count) {
		*what = "bandwidth";
		*len = meter_bandwidth_sizes[i];
		*value = tw_stream_of((double) *len / 1e3, out, in, *len);
		return true;
	}
	i -= meter_bandwidth_count;
	if (i < (int) (sizeof(shifted) / sizeof(shifted[0]))) {
		*what = "bandwidth+16";
		*len = shifted[i];
		/* The buffers are of METER_LARGEST: there is room for these. */
		*value = tw_stream_of((double) *len / 1e3, out + 16, in + 16, *len);
		return true;
	}
	return false;
}

static void tw_latency(const char *what, uint8_t *out, uint8_t *in, size_t len)
{
	double t = tw_latency_us(out, in, len);

	if (rank == 0)
		meter_print(what, len, t);
}

/* What fits into one cache line. */
static inline void tw_short(uint8_t *out, uint8_t *in)
{
	double rate;

	for (size_t len = 0; len <= 32; len = len ? 4 * len : 8)
		tw_latency("latency", out, in, len);
	rate = tw_stream_of(1, out, in, 8);
	if (rank == 0)
		meter_print("rate", 8, rate);
}

static inline void tw_all(uint8_t *out, uint8_t *in)
{
	const char *what;
	double value;
	size_t len;

	for (int i = 0; tw_figure(i, out, in, &what, &len, &value); i++)
		if (rank == 0)
			meter_print(what, len, value);
}

/* Each third figure, and the rate: where many providers are compared. */
static inline void tw_few(uint8_t *out, uint8_t *in)
{
	const char *what;
	double value;
	size_t len;

	for (int i = 1; tw_figure(i, out, in, &what, &len, &value); i += 3)
		if (rank == 0)
			meter_print(what, len, value);
	if (tw_figure(meter_latency_count, out, in, &what, &len, &value) && rank == 0)
		meter_print(what, len, value);
}
