/*
 * Ranks are killed at any moment and restarted, for FABRIC_CHAOS seconds (4): every operation with them ends in bounded
 * time, all data is right, and slots are reused. The test's one process watches; its children are the ranks.
 */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "lists.h"

#define RANKS	      6
#define LARGEST_BYTES 200000
#define STUCK_LOOKS   40000 /* checks of 1 ms without a completed operation before it counts as hanging */

struct rank {
	uint8_t addr[64];
	uint32_t life;	 /* odd: addr is being written */
	uint64_t ended;	 /* operations, of all lives */
	uint64_t failed; /* operations that ended with an error */
};

struct message {
	uint32_t len, seed;
};

struct chaos {
	struct ctx c;
	struct rank *ranks;
	int me;
	unsigned int seed;
	fi_addr_t addr[RANKS];
	uint32_t life[RANKS];
	uint8_t *in, *out;
	bool sending, receiving;
	int directed; /* the receive is for this rank only, -1: for all */
};

static unsigned int some(struct chaos *h, unsigned int n)
{
	return (unsigned int) rand_r(&h->seed) / 7 % n;
}

/* Returns the current address of rank i, or FI_ADDR_NOTAVAIL. */
static fi_addr_t where(struct chaos *h, int i)
{
	struct rank *r = &h->ranks[i];
	uint32_t life = __atomic_load_n(&r->life, __ATOMIC_ACQUIRE);
	uint8_t addr[64];

	if (!life || life & 1)
		return FI_ADDR_NOTAVAIL;
	if (h->life[i] == life)
		return h->addr[i];
	memcpy(addr, r->addr, sizeof(addr));
	if (__atomic_load_n(&r->life, __ATOMIC_ACQUIRE) != life)
		return FI_ADDR_NOTAVAIL;
	if (h->life[i] && !h->receiving)
		OK(fi_av_remove(h->c.av, &h->addr[i], 1, 0));
	CHECK(fi_av_insert(h->c.av, addr, 1, &h->addr[i], 0, NULL) == 1);
	h->life[i] = life;
	return h->addr[i];
}

static void over(struct chaos *h, bool failed)
{
	struct rank *r = &h->ranks[h->me];

	__atomic_add_fetch(&r->ended, 1, __ATOMIC_RELAXED);
	if (failed)
		__atomic_add_fetch(&r->failed, 1, __ATOMIC_RELAXED);
}

/* Reads a queue: the send or the receive has completed, or failed. */
static void poll_queue(struct chaos *h, struct fid_cq *cq, bool *pending)
{
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(cq, &e, 1);

	if (n == 1) {
		struct message m;

		*pending = false;
		if (cq == h->c.rxcq) {
			CHECK(e.len >= sizeof(m));
			memcpy(&m, h->in, sizeof(m));
			CHECK(m.len == e.len);
			CHECK(filled(h->in + sizeof(m), m.len - sizeof(m), m.seed));
		}
		over(h, false);
	} else if (n == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		CHECK(fi_cq_readerr(cq, &err.e, 0) == 1);
		CHECK(err.e.err == FI_EIO || err.e.err == FI_ECANCELED);
		*pending = false;
		over(h, true);
	} else {
		CHECK(n == -FI_EAGAIN);
	}
}

static void step(struct chaos *h)
{
	int to = (int) some(h, RANKS);
	fi_addr_t addr = where(h, to);
	ssize_t n;

	if (!h->receiving) {
		h->directed = addr != FI_ADDR_NOTAVAIL && some(h, 3) == 0 ? to : -1;
		n = fi_trecv(h->c.ep, h->in, LARGEST_BYTES, NULL, h->directed < 0 ? FI_ADDR_UNSPEC : addr, 1, 0, h);
		if (n != -FI_EIO && n != -FI_EAGAIN)
			OK(n);
		h->receiving = !n;
	} else if (some(h, 20000) == 0) {
		OK(fi_cancel(&h->c.ep->fid, h));
	}
	if (!h->sending && addr != FI_ADDR_NOTAVAIL) {
		size_t len = sizeof(struct message) + (some(h, 4) ? some(h, 500) : some(h, LARGEST_BYTES - 100));
		struct message m = { (uint32_t) len, some(h, 1000) };

		memcpy(h->out, &m, sizeof(m));
		fill(h->out + sizeof(m), len - sizeof(m), m.seed);
		n = fi_tsend(h->c.ep, h->out, len, NULL, addr, 1, h);
		if (n != -FI_EIO && n != -FI_EAGAIN)
			OK(n);
		h->sending = !n;
		if (n == -FI_EIO)
			over(h, true);
	}
	poll_queue(h, h->c.rxcq, &h->receiving);
	poll_queue(h, h->c.txcq, &h->sending);
}

_Noreturn static void live(struct rank *ranks, int me, unsigned int seed)
{
	static const struct setup plain;
	struct chaos h = { .ranks = ranks, .me = me, .seed = seed };
	size_t len = 64;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_all(&h.c, &plain);
	h.in = calloc(1, LARGEST_BYTES);
	h.out = malloc(LARGEST_BYTES);
	__atomic_store_n(&ranks[me].life, ranks[me].life | 1, __ATOMIC_RELEASE);
	OK(fi_getname(&h.c.ep->fid, ranks[me].addr, &len));
	__atomic_store_n(&ranks[me].life, ranks[me].life + 1, __ATOMIC_RELEASE);
	for (unsigned int i = 1;; i++) {
		step(&h);
		if (i % 16 == 0)
			sched_yield();
	}
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

static void chaos(struct ctx *c)
{
	const char *seconds = getenv("FABRIC_CHAOS"), *text = getenv("FABRIC_SEED");
	double end = now() + (seconds ? atof(seconds) : 4);
	/* Polls are counted, not the clock: all processes may be stopped together. */
	int still[RANKS] = { 0 };
	uint32_t old[RANKS] = { 0 }; /* value of a rank's life when it was restarted */
	unsigned int seed = text ? (unsigned int) atoi(text) : 1, kills = 0;
	struct rank *ranks = shared();
	uint64_t seen[RANKS] = { 0 }, ended = 0, failed = 0, sum, next = 100;
	pid_t pids[RANKS];
	int i, status;

	(void) c;
	for (i = 0; i < RANKS; i++) {
		fflush(NULL);
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i])
			live(ranks, i, seed * 100 + (unsigned int) i);
	}
	while (now() < end || !kills) {
		int present = 0;

		usleep(1000);
		for (i = 0, sum = 0; i < RANKS; i++) {
			uint64_t n = __atomic_load_n(&ranks[i].ended, __ATOMIC_RELAXED);

			sum += n;
			present += __atomic_load_n(&ranks[i].life, __ATOMIC_ACQUIRE) > (old[i] | 1);
			CHECK(waitpid(pids[i], &status, WNOHANG) == 0);
			still[i] = n == seen[i] ? still[i] + 1 : 0;
			seen[i] = n;
			if (still[i] > STUCK_LOOKS) {
				fprintf(stderr, "rank %d (process %d) hangs\n", i, (int) pids[i]);
				CHECK(!"every operation ends");
			}
		}
		/*
		 * The next rank is killed when the others have made progress, and at least one other is alive: a region
		 * without live ranks is not reused, and its ranks' addresses lead nowhere.
		 */
		if (sum < next || present < 2)
			continue;
		next = sum + (unsigned int) rand_r(&seed) / 7 % 500;
		i = (int) ((unsigned int) rand_r(&seed) / 7 % RANKS);
		CHECK(!kill(pids[i], SIGKILL) && waitpid(pids[i], &status, 0) == pids[i]);
		kills++;
		old[i] = __atomic_load_n(&ranks[i].life, __ATOMIC_ACQUIRE);
		still[i] = 0;
		fflush(NULL);
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i])
			live(ranks, i, ++seed);
	}
	for (i = 0; i < RANKS; i++) {
		CHECK(waitpid(pids[i], &status, WNOHANG) == 0);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		ended += ranks[i].ended;
		failed += ranks[i].failed;
	}
	printf("  %u kills, %ju operations, %ju of them failed\n", kills, (uintmax_t) ended, (uintmax_t) failed);
	CHECK(ended > failed);
	/* No process was left to remove it. */
	unlink(getenv("FI_IVSHMEM_REGION"));
}

const struct test test_chaos[] = { { "chaos", 1, chaos, .bare = true, .unlimited = true,
				     .env = { "FI_IVSHMEM_RANKS=16", "FI_IVSHMEM_TIMEOUT=3000" } },
				   { "chaos_no_cma", 1, chaos, .bare = true, .unlimited = true,
				     .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_RANKS=16", "FI_IVSHMEM_TIMEOUT=3000" } },
				   { 0 } };
