/*
 * Random traffic: sizes, tags, wildcards, cancels, truncation, floods, RMA and atomics at once, between all ranks.
 * Every byte, every sum and the order of matching are checked. FABRIC_SEED chooses another run; FABRIC_MESSAGES is the
 * number that each process sends.
 */
#include <sched.h>

#include "lists.h"

#define POSTED	 16 /* receives of a process at once */
#define SENDS	 8  /* sends of a process in progress at once */
#define TAGS	 4
#define SLICE	 4096 /* bytes of each process's window that each other one writes */
#define MASK_ANY UINT64_MAX

struct head {
	uint32_t src, seq, len, seed;
};

struct receive {
	uint8_t *buf;
	size_t len;
	uint64_t index; /* of its post */
	bool used;
};

struct send {
	uint8_t *buf;
	bool used;
};

/* The post that received each message of a source and tag, in the order of sending. */
struct seen {
	uint64_t *index;
	uint32_t count, size;
};

struct stress {
	struct ctx *c;
	unsigned int seed;
	size_t largest;
	struct receive rx[POSTED];
	struct send tx[SENDS];
	uint32_t seq[MAX_PROCS][TAGS];
	struct seen seen[MAX_PROCS][TAGS];
	uint64_t posts, received, cancelled, truncated;
	int busy; /* sends in progress */
};

/* Memory that all processes share. */
struct board {
	uint32_t sent[MAX_PROCS];  /* to each process */
	uint64_t added[MAX_PROCS]; /* to each process's counter */
	uint32_t done;		   /* processes that have sent everything */
};

static unsigned int rnd(struct stress *s, unsigned int n)
{
	return (unsigned int) rand_r(&s->seed) / 7 % n;
}

/* Returns a length, mostly small, sometimes for another path of a message. */
static size_t random_len(struct stress *s)
{
	static const size_t edges[] = { 0,    8,    48,	   49,	  104,	 328,	 329,	4096,
					8192, 8193, 12288, 65536, 65537, 100000, 300000 };
	size_t len = rnd(s, 3)	 ? rnd(s, 400)
		     : rnd(s, 2) ? edges[rnd(s, sizeof(edges) / sizeof(edges[0]))] + rnd(s, 3)
				 : rnd(s, (unsigned int) s->largest);

	if (len < sizeof(struct head))
		len = sizeof(struct head);
	return len < s->largest ? len : s->largest;
}

static void note(struct stress *s, const struct head *h, uint64_t tag, uint64_t index)
{
	struct seen *seen = &s->seen[h->src][tag];

	if (h->seq >= seen->size) {
		uint32_t size = 2 * h->seq + 64;

		seen->index = realloc(seen->index, size * sizeof(*seen->index));
		CHECK(seen->index);
		memset(seen->index + seen->size, 0xff, (size - seen->size) * sizeof(*seen->index));
		seen->size = size;
	}
	CHECK(seen->index[h->seq] == UINT64_MAX);
	seen->index[h->seq] = index;
	seen->count++;
}

/* Checks a received message. full: its length when sent, or 0 if that was not reported. */
static void arrived(struct stress *s, struct receive *r, size_t len, size_t full, uint64_t tag, fi_addr_t src)
{
	struct head h;

	CHECK(len >= sizeof(h) && tag < TAGS);
	memcpy(&h, r->buf, sizeof(h));
	CHECK(h.src < (uint32_t) s->c->procs && len <= r->len && h.len == (full ? full : h.len));
	CHECK(src == FI_ADDR_NOTAVAIL || src == s->c->peer[h.src]);
	CHECK(filled(r->buf + sizeof(h), len - sizeof(h), h.seed));
	note(s, &h, tag, r->index);
	s->received++;
	r->used = false;
}

/* Returns true without a region. */
static bool network(void)
{
	const char *region = getenv("FI_IVSHMEM_REGION");

	return region && !strcmp(region, "none");
}

/* Reads both queues once. */
static void turn(struct stress *s)
{
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	ssize_t n;

	n = fi_cq_readfrom(s->c->rxcq, &e, 1, &src);
	if (n == 1) {
		arrived(s, e.op_context, e.len, e.len, e.tag, src);
	} else if (n == -FI_EAVAIL) {
		struct receive *r;

		memset(&err, 0, sizeof(err));
		CHECK(fi_cq_readerr(s->c->rxcq, &err.e, 0) == 1);
		r = err.e.op_context;
		if (err.e.err == FI_ECANCELED) {
			s->cancelled++;
			r->used = false;
		} else {
			CHECK(err.e.err == FI_ETRUNC && err.e.len == r->len);
			/* tcp of libfabric 2 does not report how many bytes were truncated. */
			CHECK(err.e.olen || network());
			s->truncated++;
			arrived(s, r, err.e.len, err.e.olen ? err.e.len + err.e.olen : 0, err.e.tag, FI_ADDR_NOTAVAIL);
		}
	} else {
		CHECK(n == -FI_EAGAIN);
	}
	n = fi_cq_read(s->c->txcq, &e, 1);
	CHECK(n == 1 || n == -FI_EAGAIN);
	if (n == 1) {
		struct send *t = e.op_context;

		t->used = false;
		s->busy--;
	} else if (n == -FI_EAGAIN) {
		sched_yield();
	}
}

/* Posts a receive of any kind, or with all one that matches everything. Returns false if none is free. */
static bool post(struct stress *s, bool all)
{
	fi_addr_t src = FI_ADDR_UNSPEC;
	uint64_t tag = rnd(s, TAGS), ignore = 0;
	struct receive *r = NULL;
	int i;

	for (i = 0; i < POSTED; i++)
		if (!s->rx[i].used)
			r = &s->rx[i];
	if (!r)
		return false;
	if (all || rnd(s, 3) == 0)
		ignore = MASK_ANY;
	if (!all && rnd(s, 2))
		src = s->c->peer[rnd(s, (unsigned int) s->c->procs)];
	r->len = all || rnd(s, 8) ? s->largest : sizeof(struct head) + rnd(s, 5000);
	if (r->len > s->largest)
		r->len = s->largest;
	r->index = s->posts++;
	r->used = true;
	RETRY(s->c, fi_trecv(s->c->ep, r->buf, r->len, NULL, src, tag, ignore, r));
	return true;
}

static void cancel(struct stress *s)
{
	struct receive *r = &s->rx[rnd(s, POSTED)];

	if (r->used)
		OK(fi_cancel(&s->c->ep->fid, r));
}

/* Handles messages while an operation has to wait: the others' messages need receives. */
static void wait_turn(struct stress *s)
{
	/* All receives may be posted for messages that never arrive. */
	if (!post(s, true) && rnd(s, 100) == 0)
		cancel(s);
	turn(s);
}

static void send_one(struct stress *s, struct board *b)
{
	int to = (int) rnd(s, (unsigned int) s->c->procs), i;
	uint64_t tag = rnd(s, TAGS);
	size_t len = random_len(s);
	struct head h = { (uint32_t) s->c->rank, s->seq[to][tag]++, (uint32_t) len, rnd(s, 1000) };
	bool inject = len <= s->c->info->tx_attr->inject_size && rnd(s, 2);
	struct send *t = NULL;
	ssize_t n;

	while (!t) {
		for (i = 0; i < SENDS; i++)
			if (!s->tx[i].used)
				t = &s->tx[i];
		if (!t)
			wait_turn(s);
	}
	memcpy(t->buf, &h, sizeof(h));
	fill(t->buf + sizeof(h), len - sizeof(h), h.seed);
	__atomic_add_fetch(&b->sent[to], 1, __ATOMIC_RELAXED);
	for (;;) {
		n = inject ? fi_tinject(s->c->ep, t->buf, len, s->c->peer[to], tag)
			   : fi_tsend(s->c->ep, t->buf, len, NULL, s->c->peer[to], tag, t);
		if (n != -FI_EAGAIN)
			break;
		wait_turn(s);
	}
	OK(n);
	if (!inject) {
		t->used = true;
		s->busy++;
	}
}

/* Writes into this process's slice of the window of another process, and reads it back. */
static void remote(struct stress *s, struct board *b)
{
	static uint8_t out[SLICE], in[SLICE];
	static uint64_t one;
	static struct send done;
	int to = (int) rnd(s, (unsigned int) s->c->procs);
	uint64_t at = sizeof(uint64_t) + (uint64_t) s->c->rank * SLICE;
	size_t len = 1 + rnd(s, SLICE);
	unsigned int seed = rnd(s, 1000);

	fill(out, len, seed);
	memset(in, 0, len);
#define DO(call) \
	do { \
		ssize_t n_; \
		while ((n_ = (call)) == -FI_EAGAIN) \
			wait_turn(s); \
		OK(n_); \
		done.used = true; \
		s->busy++; \
		while (done.used) \
			wait_turn(s); \
	} while (0)
	DO(fi_write(s->c->ep, out, len, NULL, s->c->peer[to], at, 1, &done));
	DO(fi_read(s->c->ep, in, len, NULL, s->c->peer[to], at, 1, &done));
	CHECK(filled(in, len, seed));
	one = seed;
	DO(fi_atomic(s->c->ep, &one, 1, NULL, s->c->peer[to], 0, 1, FI_UINT64, FI_SUM, &done));
	__atomic_add_fetch(&b->added[to], seed, __ATOMIC_RELAXED);
#undef DO
}

/* A later post must not have received an earlier message of the same source and tag. */
static void check_order(struct stress *s)
{
	int src, tag;
	uint32_t i;

	for (src = 0; src < s->c->procs; src++)
		for (tag = 0; tag < TAGS; tag++)
			for (i = 1; i < s->seen[src][tag].count; i++)
				CHECK(s->seen[src][tag].index[i] > s->seen[src][tag].index[i - 1]);
}

static void stress(struct ctx *c)
{
	const char *seed = getenv("FABRIC_SEED"), *count = getenv("FABRIC_MESSAGES");
	struct stress s = { .c = c, .largest = c->procs > 8 ? 20000 : 400000 };
	int messages = count ? atoi(count) : 400 / c->procs + 10, i, k;
	size_t window = sizeof(uint64_t) + (size_t) c->procs * SLICE;
	struct board *b = shared();
	struct fid_mr *mr;
	uint8_t *memory;

	s.seed = (seed ? (unsigned int) atoi(seed) : 1) * 1000 + (unsigned int) c->rank;
	memory = calloc(1, window);
	for (i = 0; i < POSTED; i++)
		/* Zeroed: valgrind does not see a neighbour's writes there. */
		CHECK((s.rx[i].buf = calloc(1, s.largest)));
	for (i = 0; i < SENDS; i++)
		CHECK((s.tx[i].buf = malloc(s.largest)));
	OK(fi_mr_reg(c->domain, memory, window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL));
	barrier(c);
	for (i = 0; i < messages; i++) {
		/* Now and then nothing is posted for a while, so that the others flood this process. */
		bool lazy = i / 32 % 4 == 3;

		send_one(&s, b);
		for (k = 0; !lazy && k < 2; k++)
			post(&s, false);
		if (rnd(&s, 10) == 0)
			cancel(&s);
		if (rnd(&s, 20) == 0)
			remote(&s, b);
		for (k = 0; k < 3; k++)
			turn(&s);
	}
	while (s.busy)
		wait_turn(&s);
	__atomic_add_fetch(&b->done, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&b->done, __ATOMIC_ACQUIRE) < (uint32_t) c->procs ||
	       s.received < __atomic_load_n(&b->sent[c->rank], __ATOMIC_RELAXED))
		wait_turn(&s);
	for (i = 0; i < POSTED; i++)
		if (s.rx[i].used) {
			OK(fi_cancel(&c->ep->fid, &s.rx[i]));
			while (s.rx[i].used)
				turn(&s);
		}
	CHECK(s.received == b->sent[c->rank]);
	check_order(&s);
	barrier(c);
	CHECK(*(uint64_t *) (void *) memory == b->added[c->rank]);
	OK(fi_close(&mr->fid));
	for (i = 0; i < POSTED; i++)
		free(s.rx[i].buf);
	for (i = 0; i < SENDS; i++)
		free(s.tx[i].buf);
	for (i = 0; i < c->procs; i++)
		for (k = 0; k < TAGS; k++)
			free(s.seen[i][k].index);
	free(memory);
}

const struct test test_stress[] = {
	{ "stress_2", 2, stress },
	{ "stress_2_no_cma", 2, stress, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "stress_4_safe", 4, stress, .setup = { .threading = FI_THREAD_SAFE } },
	/* Few messages are held: the others wait in the senders' rings. */
	{ "stress_4_small", 4, stress, .setup = { .cq_size = 8 },
	  .env = { "FI_IVSHMEM_UNEXPECTED=65536", "FI_IVSHMEM_REGION_SIZE=2097152" } },
	{ "stress_3_delivery", 3, stress, .setup = { .tx_op_flags = FI_DELIVERY_COMPLETE } },
	{ "stress_4_network", 4, stress, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "hosts_stress", 4, stress, .per_host = 2, .env = { "FI_IVSHMEM_CORE=auto" } },
	{ "stress_16", 16, stress },
	{ "stress_64", 64, stress },
	{ 0 }
};
