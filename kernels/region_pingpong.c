/* Latency and bandwidth over a region between two VMs, or two processes of a host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "options.h"
#include "peer.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] = "region_pingpong - latency and bandwidth over a region\n"
			   "\n"
			   "Usage: region_pingpong --role a [OPTION]...     in one VM, and\n"
			   "       region_pingpong --role b                 in another, in any order\n"
			   "       region_pingpong --fork [OPTION]...       between two processes of this host\n"
			   "\n"
			   "Two sides write messages into the memory that they share and poll for the other's.\n"
			   "Latency is half a round trip, in microseconds: a message of up to 56 bytes stands in\n"
			   "one cache line with the number that announces it, a larger one is copied in and out.\n"
			   "Bandwidth is that of a stream from a to b, in MB/s (1e6 bytes a second), through a ring\n"
			   "of up to 1 MiB in chunks of up to 8 KiB, copied in and out (two copies): each iteration\n"
			   "sends up to 64 messages or 64 MiB and waits for the answer. Only the region's scratch\n"
			   "area is used: ranks that exchange messages over the same region are not disturbed, but\n"
			   "only one pair of these programs may run in a region at a time.\n"
			   "\n"
			   "At the start the time of a read is measured; a region that is not cached is refused.\n"
			   "The content is checked once for each size.\n"
			   "\n"
			   "Options:\n"
			   "      --latency A:B         sizes for latency in bytes, doubling (default 0:4KiB, at most\n"
			   "                            64KiB and what fits into half of the scratch area)\n"
			   "      --bandwidth A:B       sizes for bandwidth (default 4KiB:8MiB, at most 64MiB)\n"
			   "      --only latency|bandwidth\n"
			   "      --iterations N[:M]    round trips, and windows of the bandwidth (default\n"
			   "                            10000:20; N alone leaves M)\n"
			   "      --warmup N[:M]        before those (default 1000:2)\n" PEER_HELP
			   "What is measured, the options above --region, is side a's to say; b follows it.\n"
			   "\n"
			   "Output: lines that start with # and a table for each measurement. Its columns:\n"
			   "  bytes       of one message\n"
			   "  iterations  round trips (latency), windows (bandwidth)\n"
			   "  mean        latency: of all round trips; bandwidth: all bytes over all the time\n"
			   "  min         the shortest round trip; the slowest window\n"
			   "  median      of the round trips; of the windows\n"
			   "  p99         99 % of the round trips took no longer; 99 % of the windows reached it\n"
			   "All columns of a row are from the same round trips or windows, so min <= median and\n"
			   "min <= mean. Each round trip includes one reading of the clock; the first line says\n"
			   "how long that takes.\n"
			   "\n"
			   "Exit status: 0; 1 if the region cannot be used, the other side is missing or a message\n"
			   "did not arrive as it was sent; 2 for a wrong option.\n"
			   "\n"
			   "Example:\n"
			   "  region_pingpong --fork --cpus 0,1\n"
			   "  nearmetal exec --vm vm1 region_pingpong --role b &\n"
			   "  nearmetal exec --vm vm0 region_pingpong --role a\n";

#define LINE_PAYLOAD  (CACHE_LINE - sizeof(uint64_t))
#define MAX_LATENCY   (64ULL << 10)
#define MAX_BANDWIDTH (64ULL << 20)
#define CHUNK	      8192
#define MAX_RING      (1ULL << 20)
#define WINDOW	      64
#define WINDOW_BYTES  (64ULL << 20)

/* One side's data: its half of the area starts with this, followed by its payload. */
struct half {
	_Alignas(CACHE_LINE) _Atomic uint64_t number; /* of the last message */
	unsigned char payload[LINE_PAYLOAD];
	_Alignas(CACHE_LINE) _Atomic uint64_t head; /* chunks written (a) */
	_Alignas(CACHE_LINE) _Atomic uint64_t tail; /* chunks read (b) */
	_Alignas(4096) unsigned char data[];
};

enum { LAT_MIN, LAT_MAX, BW_MIN, BW_MAX, ITERATIONS, WINDOWS, WARMUPS, PARTS };
enum { PART_LATENCY = 1, PART_BANDWIDTH = 2 };

struct test {
	struct peer peer;
	struct half *mine, *theirs;
	size_t data_bytes; /* of half.data */
	uint64_t parameters[PEER_PARAMETERS];
	unsigned char *out, *in; /* at most MAX_BANDWIDTH: private copies */
	uint64_t number;
	bool json;
	int rows;
};

static size_t half_bytes(const struct peer *p)
{
	return p->area_bytes / 2 & ~(size_t) 4095;
}

static struct half *half_of(const struct peer *p, char role)
{
	return (struct half *) (p->area + (role == 'b' ? half_bytes(p) : 0));
}

static void prepare(struct peer *p)
{
	struct half *h = half_of(p, p->role);

	atomic_store(&h->number, 0);
	atomic_store(&h->head, 0);
	atomic_store(&h->tail, 0);
}

static unsigned char pattern(size_t bytes, size_t i, char role)
{
	return (unsigned char) (i * 31 + (i >> 8) * 7 + bytes % 251 + (role == 'a' ? 1 : 102));
}

static void fill(struct test *t, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		t->out[i] = pattern(bytes, i, t->peer.role);
	memset(t->in, 0, bytes);
}

static bool arrived(const struct test *t, size_t bytes)
{
	char from = t->peer.role == 'a' ? 'b' : 'a';

	for (size_t i = 0; i < bytes; i++)
		if (t->in[i] != pattern(bytes, i, from)) {
			complain("side %c: byte %zu of a message of %zu bytes did not arrive as it was sent",
				 t->peer.role, i, bytes);
			return false;
		}
	return true;
}

static inline void post(struct test *t, size_t bytes)
{
	if (bytes <= LINE_PAYLOAD)
		memcpy(t->mine->payload, t->out, bytes);
	else
		copy_block(t->mine->data, t->out, bytes);
	atomic_store_explicit(&t->mine->number, ++t->number, memory_order_release);
}

static inline bool await(struct test *t, uint64_t number, size_t bytes)
{
	struct peer_wait w = { 0 };

	while (atomic_load_explicit(&t->theirs->number, memory_order_acquire) != number)
		if (!peer_waiting(&t->peer, &w))
			return peer_lost(&t->peer);
	if (bytes <= LINE_PAYLOAD)
		memcpy(t->in, t->theirs->payload, bytes);
	else
		copy_block(t->in, t->theirs->data, bytes);
	return true;
}

/*
 * Does n round trips. samples receives half of each one's time in us, from one reading of the clock to the next, so
 * that their sum is half of the whole time.
 */
static bool round_trips(struct test *t, size_t bytes, uint64_t n, double *samples)
{
	double start = samples ? now() : 0;

	for (uint64_t i = 0; i < n; i++) {
		if (t->peer.role == 'a') {
			post(t, bytes);
			if (!await(t, t->number, bytes))
				return false;
		} else {
			if (!await(t, t->number + 1, bytes))
				return false;
			post(t, bytes);
		}
		if (samples) {
			double end = now();

			samples[i] = (end - start) * 1e6 / 2;
			start = end;
		}
	}
	return true;
}

/* Returns the nanoseconds of a reading of the clock, the minimum of several. */
static double clock_ns(void)
{
	enum { READINGS = 1000 };
	double least = 1e9;

	for (int round = 0; round < 10; round++) {
		double start = now(), end = start;

		for (int i = 0; i < READINGS; i++)
			end = now();
		if ((end - start) * 1e9 / READINGS < least)
			least = (end - start) * 1e9 / READINGS;
	}
	return least;
}

static void print_row(struct test *t, const char *what, size_t bytes, uint64_t n, const struct summary *s)
{
	if (t->peer.role != 'a')
		return;
	if (t->json)
		printf("%s\n{\"bytes\":%zu,\"iterations\":%llu,\"mean\":%.6g,\"min\":%.6g,\"median\":%.6g,\"p99\":%."
		       "6g}",
		       t->rows ? "," : "", bytes, (unsigned long long) n, s->mean, s->min, s->median, s->p99);
	else {
		if (!t->rows)
			printf("# %s\n# %10s %10s %12s %12s %12s %12s\n", what, "bytes", "iterations", "mean", "min",
			       "median", "p99");
		printf("%12zu %10llu %12.3f %12.3f %12.3f %12.3f\n", bytes, (unsigned long long) n, s->mean, s->min,
		       s->median, s->p99);
	}
	fflush(stdout);
	t->rows++;
}

static bool latency(struct test *t, size_t bytes)
{
	uint64_t n = t->parameters[ITERATIONS], warmup = t->parameters[WARMUPS] >> 32;
	double *samples = malloc(n * sizeof(*samples));
	struct summary s;
	bool ok = samples != NULL;

	if (!ok)
		complain("no memory for %llu samples; take fewer --iterations", (unsigned long long) n);
	fill(t, bytes);
	ok = ok && peer_barrier(&t->peer) && round_trips(t, bytes, warmup, NULL);
	ok = ok && round_trips(t, bytes, n, samples) && arrived(t, bytes);
	if (ok) {
		s = summarize(samples, n);
		print_row(t, "latency: half a round trip, us", bytes, n, &s);
	}
	free(samples);
	return ok;
}

/* The ring of chunks in a's data. */
struct ring {
	size_t chunk, chunks; /* bytes, and a power of two of them */
};

static struct ring ring_for(const struct test *t, size_t bytes)
{
	struct ring r = { .chunk = bytes < CHUNK ? bytes : CHUNK, .chunks = 1 };
	size_t room = t->data_bytes < MAX_RING ? t->data_bytes : MAX_RING;

	while (r.chunks * 2 * CHUNK <= room)
		r.chunks *= 2;
	return r;
}

/* Sends one message; head counts the chunks written so far. */
static bool stream_out(struct test *t, const struct ring *r, size_t bytes, uint64_t *head, uint64_t *tail)
{
	for (size_t at = 0; at < bytes; at += r->chunk, ++*head) {
		size_t n = bytes - at < r->chunk ? bytes - at : r->chunk;
		struct peer_wait w = { 0 };

		while (*head - *tail >= r->chunks) {
			uint64_t v = atomic_load_explicit(&t->theirs->tail, memory_order_acquire);

			if (v - *tail <= *head - *tail) /* otherwise the value is invalid */
				*tail = v;
			if (*head - *tail >= r->chunks && !peer_waiting(&t->peer, &w))
				return peer_lost(&t->peer);
		}
		copy_block(t->mine->data + (*head % r->chunks) * CHUNK, t->out + at, n);
		atomic_store_explicit(&t->mine->head, *head + 1, memory_order_release);
	}
	return true;
}

static bool stream_in(struct test *t, const struct ring *r, size_t bytes, uint64_t *head, uint64_t *tail)
{
	for (size_t at = 0; at < bytes; at += r->chunk, ++*tail) {
		size_t n = bytes - at < r->chunk ? bytes - at : r->chunk;
		struct peer_wait w = { 0 };

		while (*head == *tail) {
			uint64_t v = atomic_load_explicit(&t->theirs->head, memory_order_acquire);

			if (v - *tail <= r->chunks)
				*head = v;
			if (*head == *tail && !peer_waiting(&t->peer, &w))
				return peer_lost(&t->peer);
		}
		copy_block(t->in + at, t->theirs->data + (*tail % r->chunks) * CHUNK, n);
		atomic_store_explicit(&t->mine->tail, *tail + 1, memory_order_release);
	}
	return true;
}

static bool bandwidth(struct test *t, size_t bytes)
{
	uint64_t n = t->parameters[WINDOWS], warmup = t->parameters[WARMUPS] & 0xffffffff;
	uint64_t window = WINDOW_BYTES / bytes < WINDOW ? WINDOW_BYTES / bytes : WINDOW, head, tail;
	double *seconds = malloc(n * sizeof(*seconds)), total = 0, mb = (double) bytes * (double) window / 1e6;
	struct ring r = ring_for(t, bytes);
	bool ok = seconds != NULL;

	if (!ok)
		complain("no memory for %llu samples; take fewer --iterations", (unsigned long long) n);
	fill(t, bytes);
	head = tail = atomic_load(t->peer.role == 'a' ? &t->mine->head : &t->mine->tail);
	ok = ok && peer_barrier(&t->peer);
	for (uint64_t i = 0; ok && i < warmup + n; i++) {
		double start = now();

		for (uint64_t w = 0; ok && w < window; w++)
			ok = t->peer.role == 'a' ? stream_out(t, &r, bytes, &head, &tail)
						 : stream_in(t, &r, bytes, &head, &tail);
		/* The answer: all of the window was read. */
		if (t->peer.role == 'a')
			ok = ok && peer_await(&t->peer, &t->theirs->tail, head);
		tail = t->peer.role == 'a' ? head : tail;
		if (i >= warmup) {
			seconds[i - warmup] = now() - start;
			total += seconds[i - warmup];
		}
	}
	ok = ok && (t->peer.role == 'a' || arrived(t, bytes));
	if (ok) {
		struct summary s = summarize(seconds, n);
		struct summary rate = {
			.mean = mb * (double) n / total,
			.min = mb / s.max,
			.median = mb / s.median,
			.p99 = mb / s.p99,
		};

		print_row(t, "bandwidth: from a to b, two copies, MB/s", bytes, n, &rate);
	}
	free(seconds);
	return ok;
}

/* Reads a's parameters, which b must not trust. */
static bool parameters_sound(const struct test *t)
{
	const uint64_t *p = t->parameters;

	return p[LAT_MIN] <= p[LAT_MAX] && p[LAT_MAX] <= MAX_LATENCY && p[LAT_MAX] <= t->data_bytes && p[BW_MIN] >= 1 &&
	       p[BW_MIN] <= p[BW_MAX] && p[BW_MAX] <= MAX_BANDWIDTH && p[ITERATIONS] >= 1 &&
	       p[ITERATIONS] <= 100000000 && p[WINDOWS] >= 1 && p[WINDOWS] <= 1000000 &&
	       p[WARMUPS] >> 32 <= 100000000 && (p[WARMUPS] & 0xffffffff) <= 1000000;
}

static void header(const struct test *t, const struct peer_options *o, const struct read_times *times)
{
	const char *path = o->region ? o->region : o->fork ? "(a new one in /dev/shm)" : NM_REGION_DEVICE;

	if (t->peer.role != 'a')
		return;
	if (t->json) {
		printf("{\"program\":\"region_pingpong\",\"region\":");
		json_string(stdout, path);
		printf(",\"readNs\":%.3g,\"ordinaryReadNs\":%.3g,\"clockNs\":%.3g,\"emulated\":%s", times->region,
		       times->ordinary, clock_ns(), emulated() ? "true" : "false");
		return;
	}
	printf("# region_pingpong: %s, cached: a read takes %.2g ns, of ordinary memory %.2g ns\n", path, times->region,
	       times->ordinary);
	printf("# each round trip includes one reading of the clock, which takes %.0f ns here\n", clock_ns());
	if (emulated())
		printf("# emulated: timings are not meaningful\n");
}

static bool measure(struct test *t)
{
	const uint64_t *p = t->parameters;
	bool ok = true, print = t->peer.role == 'a' && t->json;

	if (p[PARTS] & PART_LATENCY) {
		t->rows = 0;
		if (print)
			printf(",\"latencyUs\":[");
		for (size_t b = p[LAT_MIN]; ok && b <= p[LAT_MAX]; b = next_size(b))
			ok = latency(t, b);
		if (print)
			printf("]");
	}
	if (p[PARTS] & PART_BANDWIDTH) {
		t->rows = 0;
		if (print)
			printf(",\n\"bandwidthMBs\":[");
		for (size_t b = p[BW_MIN]; ok && b <= p[BW_MAX]; b = next_size(b))
			ok = bandwidth(t, b);
		if (print)
			printf("]");
	}
	if (print)
		printf("}\n");
	/* b has also checked the data it received. */
	return ok && peer_barrier(&t->peer);
}

static int run(const struct peer_options *o, const uint64_t parameters[PEER_PARAMETERS])
{
	struct test t = { .json = o->json };
	struct read_times times;
	struct region r;
	size_t most;
	bool ok;

	if (!peer_start(&t.peer, &r, &times, o, parameters, prepare))
		return 1;
	t.mine = half_of(&t.peer, t.peer.role);
	t.theirs = half_of(&t.peer, t.peer.role == 'a' ? 'b' : 'a');
	t.data_bytes = half_bytes(&t.peer) - sizeof(struct half);
	for (int i = 0; i < PEER_PARAMETERS; i++)
		t.parameters[i] = peer_parameter(&t.peer, i);
	ok = parameters_sound(&t);
	if (!ok)
		complain("side %c: sizes or iterations that side a asks for are out of range (this region's "
			 "scratch area has %zu bytes for latency)",
			 t.peer.role, t.data_bytes);
	most = ok ? (t.parameters[BW_MAX] > MAX_LATENCY ? t.parameters[BW_MAX] : MAX_LATENCY) : 1;
	t.out = malloc(most);
	t.in = malloc(most);
	if (!t.out || !t.in) {
		complain("no memory for two buffers of %zu bytes", most);
		ok = false;
	}
	if (ok) {
		header(&t, o, &times);
		ok = measure(&t);
	}
	free(t.out);
	free(t.in);
	return peer_end(&t.peer, &r, ok ? 0 : 1);
}

int main(int argc, char **argv)
{
	enum { LATENCY = PEER_LAST, BANDWIDTH, ONLY, ITER, WARM };
	static const struct option options[] = {
		PEER_OPTIONS,
		{ "latency", required_argument, NULL, LATENCY },
		{ "bandwidth", required_argument, NULL, BANDWIDTH },
		{ "only", required_argument, NULL, ONLY },
		{ "iterations", required_argument, NULL, ITER },
		{ "warmup", required_argument, NULL, WARM },
		{ NULL, 0, NULL, 0 },
	};
	struct peer_options o = { .cpus = { -1, -1 }, .timeout = 60 };
	uint64_t p[PEER_PARAMETERS] = {
		[LAT_MIN] = 0,
		[LAT_MAX] = 4096,
		[BW_MIN] = 4096,
		[BW_MAX] = 8 << 20,
		[PARTS] = PART_LATENCY | PART_BANDWIDTH,
	};
	long n = 10000, m = 20, warm_n = 1000, warm_m = 2;
	bool ok = true;
	int c, status;

	program_name("region_pingpong");
	while (ok && (c = next_option(argc, argv, PEER_SHORT_OPTIONS, options, help, &status)) != -1) {
		switch (c) {
		case LATENCY: ok = value_sizes("latency", optarg, MAX_LATENCY, &p[LAT_MIN], &p[LAT_MAX]); break;
		case BANDWIDTH:
			ok = value_sizes("bandwidth", optarg, MAX_BANDWIDTH, &p[BW_MIN], &p[BW_MAX]);
			if (ok && !p[BW_MIN]) {
				complain("--bandwidth: messages of 0 bytes have none");
				ok = false;
			}
			break;
		case ONLY:
			if (!strcmp(optarg, "latency")) {
				p[PARTS] = PART_LATENCY;
			} else if (!strcmp(optarg, "bandwidth")) {
				p[PARTS] = PART_BANDWIDTH;
			} else {
				complain("--only: \"%s\" is neither latency nor bandwidth", optarg);
				ok = false;
			}
			break;
		case ITER:
			ok = value_counts("iterations", optarg, 1000000, &n, &m);
			if (!strchr(optarg, ':'))
				m = 20;
			if (ok && (n < 1 || m < 1)) {
				complain("--iterations: at least 1");
				ok = false;
			}
			break;
		case WARM:
			ok = value_counts("warmup", optarg, 1000000, &warm_n, &warm_m);
			if (!strchr(optarg, ':'))
				warm_m = 2;
			break;
		default: ok = peer_option(&o, c, optarg);
		}
	}
	if (ok && status >= 0)
		return status;
	if (!ok || !peer_options_check(&o))
		return 2;
	p[ITERATIONS] = (uint64_t) n;
	p[WINDOWS] = (uint64_t) m;
	p[WARMUPS] = (uint64_t) warm_n << 32 | (uint64_t) warm_m;
	return run(&o, p);
}
