/* Sleeping until something arrives: which rank wakes which, and the cost of an idle rank. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "lists.h"

#define TAG 1

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Sleeps until a receive completes: by the descriptor, or by the call. */
static void sleep_for(struct ctx *c, bool descriptor)
{
	struct fid *fids[1] = { &c->rxcq->fid };
	struct pollfd pfd = { .events = POLLIN };
	struct fi_cq_tagged_entry e;
	ssize_t n;

	if (!descriptor) {
		CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, -1) == 1);
		return;
	}
	OK(fi_control(&c->rxcq->fid, FI_GETWAIT, &pfd.fd));
	while ((n = fi_cq_read(c->rxcq, &e, 1)) != 1) {
		CHECK(n == -FI_EAGAIN);
		n = fi_trywait(c->fabric, fids, 1);
		CHECK(!n || n == -FI_EAGAIN);
		if (!n)
			CHECK(poll(&pfd, 1, -1) == 1);
	}
}

/* Rank 0 sends now and then to rank 1, which sleeps in between. Times are printed. */
static void now_and_then(struct ctx *c, const char *what, int count)
{
	double *sent = shared(), late[100];
	int in, k;

	for (k = 0; k < count; k++) {
		if (c->rank == 0) {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
			usleep(2000 + 500 * (unsigned int) (k % 7));
			sent[k] = now_us();
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[1], TAG));
			wait_comp(c, c->rxcq);
		} else {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
			sleep_for(c, k % 2);
			late[k] = now_us() - sent[k];
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[0], TAG));
		}
		CHECK(in == k);
	}
	if (c->rank == 1) {
		qsort(late, (size_t) count, sizeof(late[0]), by_value);
		printf("%s: awake after %.1f us (median of %d), %.1f us at most\n", what, late[count / 2], count,
		       late[count - 1]);
	}
}

/* The wait timeout is so long that a test that needs it counts as hanging. */
static void woken(struct ctx *c)
{
	now_and_then(c, "by a neighbour", 60);
}

/* Several endpoints and queues of a domain: any of its messages wakes its waiter. */
static void woken_by_counter(struct ctx *c)
{
	int in[20], k;

	for (k = 0; k < 20; k++) {
		if (c->rank == 0) {
			usleep(1000);
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[1], TAG));
			continue;
		}
		OK(fi_trecv(c->ep, &in[k], sizeof(in[k]), NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
		OK(fi_cntr_wait(c->rx_cntr, (uint64_t) k + 1, -1));
		CHECK(in[k] == k);
	}
	if (c->rank == 1)
		CHECK(fi_cntr_wait(c->rx_cntr, 21, 20) == -FI_ETIMEDOUT);
}

/* The sender sleeps until its large message was received. */
static void woken_sender(struct ctx *c)
{
	static char buf[3000000];
	struct fi_cq_tagged_entry e;
	int k;

	for (k = 0; k < 6; k++) {
		if (c->rank == 0) {
			fill(buf, sizeof(buf), (unsigned int) k);
			RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[1], TAG, NULL));
			CHECK(fi_cq_sread(c->txcq, &e, 1, NULL, -1) == 1);
		} else {
			usleep(4000);
			memset(buf, 0, sizeof(buf));
			OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
			CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, -1) == 1);
			CHECK(filled(buf, sizeof(buf), (unsigned int) k));
		}
	}
}

/* In another network name space no rank can be woken, like from another VM. */
static void apart(struct ctx *c)
{
	if (c->rank == 0 && unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		perror("test woken_apart: no network name space of its own");
		CHECK(!getenv("CI"));
	}
	open_all(c, &(struct setup) { .wait_obj = FI_WAIT_FD });
	exchange(c);
	/* If the flag for ranks that nobody wakes were not set, each sleep would last the wait timeout of 1.6 s. */
	now_and_then(c, "by nobody", 100);
	barrier(c);
	close_all(c);
}

/* A rank that waits for nothing hardly runs. */
static void idle(struct ctx *c)
{
	struct fi_cq_tagged_entry e;
	struct rusage a, b;
	double cpu;

	CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, 5) == -FI_EAGAIN);
	getrusage(RUSAGE_SELF, &a);
	CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, 1000) == -FI_EAGAIN);
	getrusage(RUSAGE_SELF, &b);
	cpu = (double) (b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_stime.tv_sec) * 1e3 +
	      (double) (b.ru_utime.tv_usec - a.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_stime.tv_usec) / 1e3;
	printf("idle for 1 s: %.2f ms of CPU time, %ld times awake\n", cpu, b.ru_nvcsw - a.ru_nvcsw);
	/* 20 polls, and 4 heartbeats; a tool may have threads of its own. */
	CHECK(b.ru_nvcsw - a.ru_nvcsw < 40 * patience());
}

static long taken(void)
{
	struct rusage use;

	getrusage(RUSAGE_THREAD, &use);
	return use.ru_nivcsw;
}

/* A rank that waits for another one on the same CPU yields to it far more often than at every 64th read. */
static void crowded(struct ctx *c)
{
	struct fi_cq_tagged_entry e;
	uint32_t *over = shared();
	cpu_set_t cpus, one;
	long before;
	int cpu = 0, k;

	CHECK(!sched_getaffinity(0, sizeof(cpus), &cpus));
	while (!CPU_ISSET(cpu, &cpus))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one));
	barrier(c);
	if (c->rank == 0) {
		for (k = 0; k < 4096; k++)
			CHECK(fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
		before = taken();
		for (k = 0; k < 256; k++)
			CHECK(fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
		CHECK(taken() - before >= 32);
		__atomic_store_n(over, 1, __ATOMIC_RELEASE);
	} else {
		while (!__atomic_load_n(over, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	CHECK(!sched_setaffinity(0, sizeof(cpus), &cpus));
}

/* Returns how often this thread has slept. */
static long slept(void)
{
	struct rusage use;

	getrusage(RUSAGE_THREAD, &use);
	return use.ru_nvcsw;
}

/* A waiting rank sleeps at every 16th read if other VMs need its CPU, and otherwise does not. */
static void overcommitted(struct ctx *c)
{
	bool set = getenv("FI_IVSHMEM_OVERCOMMIT") != NULL;
	struct fi_cq_tagged_entry e;
	long before = slept();
	int in, k;

	for (k = 0; k < 256; k++)
		CHECK(fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
	CHECK(set ? slept() - before >= 256 / 16 : slept() - before < 4);
	barrier(c);
	for (k = 0; k < 100; k++) {
		int to = !c->rank;

		if (k % 2 == c->rank) {
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[to], TAG));
			continue;
		}
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[to], TAG, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in == k);
	}
}

/* A rank is killed while the other sleeps until it sends. */
static void killed_asleep(struct ctx *c)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = { 0 };
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} more;
	int in;

	if (c->rank == 0) {
		RETRY(c, fi_tinject(c->ep, &c->rank, sizeof(c->rank), c->peer[1], TAG));
		barrier(c);
		usleep(20000);
		raise(SIGKILL);
	}
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[0], TAG, 0, NULL));
	wait_comp(c, c->rxcq);
	barrier(c);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[0], TAG, 0, NULL));
	CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, -1) == -FI_EAVAIL);
	memset(&more, 0, sizeof(more));
	CHECK(fi_cq_readerr(c->rxcq, &more.e, 0) == 1);
	err = more.e;
	CHECK(err.err == FI_EIO);
}

/* A process writes into the region that all ranks sleep, and that none can be woken. */
static void false_words(struct ctx *c)
{
	struct nm_layout_geometry g;
	uint8_t *layout = map_layout(&g);
	struct nm_slot *slots = (struct nm_slot *) (void *) (layout + g.slot_table);
	uint32_t i;
	int in, k;

	for (k = 0; k < 300; k++) {
		for (i = 0; i < g.slots; i++) {
			__atomic_store_n(&slots[i].asleep, (uint32_t) k % 3 * 0x55555555, __ATOMIC_RELAXED);
			__atomic_store_n(&slots[i].unwoken, (uint32_t) k & 2, __ATOMIC_RELAXED);
		}
		if (c->rank == 0) {
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[1], TAG));
			continue;
		}
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
		sleep_for(c, k % 2);
		CHECK(in == k);
	}
}

const struct test test_waiting[] = {
	{ "woken", 2, woken, .setup = { .wait_obj = FI_WAIT_FD }, .env = { "FI_IVSHMEM_WAIT_TIMEOUT=100000" } },
	{ "woken_unspec_safe", 2, woken, .setup = { .wait_obj = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE },
	  .env = { "FI_IVSHMEM_WAIT_TIMEOUT=100000" } },
	{ "woken_by_counter", 2, woken_by_counter, .setup = { .counters = true },
	  .env = { "FI_IVSHMEM_WAIT_TIMEOUT=100000" } },
	{ "woken_sender", 2, woken_sender, .setup = { .wait_obj = FI_WAIT_UNSPEC },
	  .env = { "FI_IVSHMEM_WAIT_TIMEOUT=100000" } },
	{ "woken_sender_no_cma", 2, woken_sender, .setup = { .wait_obj = FI_WAIT_UNSPEC },
	  .env = { "FI_IVSHMEM_WAIT_TIMEOUT=3000", "FI_IVSHMEM_CMA=0" } },
	{ "alone_woken", 2, woken, .setup = { .wait_obj = FI_WAIT_FD },
	  .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto", "FI_IVSHMEM_WAIT_TIMEOUT=100000" } },
	{ "woken_apart", 2, apart, .bare = true, .env = { "FI_IVSHMEM_WAIT_TIMEOUT=1600" } },
	{ "idle", 1, idle, .setup = { .wait_obj = FI_WAIT_FD } },
	{ "crowded", 2, crowded },
	{ "crowded_without_region", 2, crowded, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "not_overcommitted", 2, overcommitted },
	{ "overcommitted", 2, overcommitted, .env = { "FI_IVSHMEM_OVERCOMMIT=1" } },
	{ "overcommitted_without_region", 2, overcommitted,
	  .env = { "FI_IVSHMEM_OVERCOMMIT=1", "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "killed_asleep", 2, killed_asleep, .setup = { .wait_obj = FI_WAIT_UNSPEC }, .killed = 1 },
	{ "false_words", 2, false_words, .setup = { .wait_obj = FI_WAIT_FD } },
	{ 0 }
};
