/* Ranks that die, leave or write invalid data; forks; more ranks than slots; changed clocks. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <nearmetal/region.h>

#include "base/addr.h"
#include "lists.h"

/* One rank is killed: the others' operations that depend on it fail, and no others. */
static void killed(struct ctx *c)
{
	static char big[3000000];
	int in, i;

	if (c->rank == 2) {
		RETRY(c, fi_tinject(c->ep, &c->rank, sizeof(c->rank), c->peer[0], 1));
		barrier(c);
		raise(SIGKILL);
	}
	if (c->rank == 0) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], 1, 0, NULL));
		wait_comp(c, c->rxcq);
	}
	barrier(c);
	/* A receive that only the dead rank could have answered, and a send that it does not receive. */
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], 2, 0, &in));
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	for (i = 0; i < 100; i++) {
		ssize_t n = fi_tsend(c->ep, big, sizeof(big), NULL, c->peer[2], 2, big);

		if (n == -FI_EIO)
			break;
		CHECK(!n || n == -FI_EAGAIN);
		if (!n) {
			CHECK(wait_err(c, c->txcq).err == FI_EIO);
			break;
		}
	}
	CHECK(fi_tinject(c->ep, &in, sizeof(in), c->peer[2], 2) == -FI_EIO);
	/* The live ranks continue. */
	for (i = 0; i < 100; i++) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[!c->rank], 3, 0, NULL));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[!c->rank], 3));
		wait_comp(c, c->rxcq);
		CHECK(in == i);
	}
	/* Wait until both are done with each other. */
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[!c->rank], 4, 0, NULL));
	RETRY(c, fi_tsend(c->ep, &i, sizeof(i), NULL, c->peer[!c->rank], 4, NULL));
	wait_comp(c, c->rxcq);
}

/* A rank is killed while a large message to it, or from it, is in flight. */
static void killed_midway(struct ctx *c)
{
	enum { LEN = 64 << 20 };
	uint32_t *flag = shared();
	char *buf = malloc(LEN);

	memset(buf, 1, LEN);
	if (c->rank == 1) {
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[0], 1, 0, buf));
		barrier(c);
		/* Wait until some of it has arrived. */
		while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
			progress(c);
		raise(SIGKILL);
	}
	barrier(c);
	RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[1], 1, buf));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	CHECK(wait_err(c, c->txcq).err == FI_EIO);
	free(buf);
}

/* A dead rank's slot is claimed again, with a new epoch; the old address stays dead. */
static void reborn(struct ctx *c)
{
	static const struct setup plain;
	unsigned char old[64], now[64];
	size_t len = 64;
	fi_addr_t before, after;
	struct ctx d = { .rank = 0, .procs = 1 };
	int in, i;

	open_all(&d, &plain);
	OK(fi_getname(&d.ep->fid, old, &len));
	/* Claim all slots in rotation, so that this one is reused. */
	for (i = 0; i < 2000; i++) {
		OK(fi_close(&d.ep->fid));
		OK(fi_endpoint(d.domain, d.info, &d.ep, NULL));
		OK(fi_ep_bind(d.ep, &d.av->fid, 0));
		OK(fi_ep_bind(d.ep, &d.txcq->fid, FI_TRANSMIT));
		OK(fi_ep_bind(d.ep, &d.rxcq->fid, FI_RECV));
		OK(fi_enable(d.ep));
		OK(fi_getname(&d.ep->fid, now, &len));
		if (!memcmp(old, now, 4))
			break;
	}
	CHECK(!memcmp(old, now, 4) && memcmp(old, now, 8));
	CHECK(fi_av_insert(d.av, old, 1, &before, 0, NULL) == 1);
	CHECK(fi_av_insert(d.av, now, 1, &after, 0, NULL) == 1);
	CHECK(fi_tinject(d.ep, &i, sizeof(i), before, 1) == -FI_EIO);
	OK(fi_trecv(d.ep, &in, sizeof(in), NULL, after, 1, 0, NULL));
	RETRY(&d, fi_tinject(d.ep, &i, sizeof(i), after, 1));
	wait_comp(&d, d.rxcq);
	CHECK(in == i);
	close_all(&d);
	(void) c;
}

/* Messages that were sent before the sender left are received. */
static void last_words(struct ctx *c)
{
	static char buf[50000];
	uint32_t *left = shared();
	int i;

	if (c->rank) {
		fill(buf, sizeof(buf), 3);
		RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[0], 1, NULL));
		wait_comp(c, c->txcq);
		for (i = 0; i < 50; i++)
			RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[0], 2));
		close_all(c);
		__atomic_store_n(left, 1, __ATOMIC_RELEASE);
		exit(0);
	}
	while (!__atomic_load_n(left, __ATOMIC_ACQUIRE))
		usleep(100);
	for (i = 0; i < 50; i++) {
		int in;

		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in == i);
	}
	OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[1], 1, 0, NULL));
	wait_comp(c, c->rxcq);
	CHECK(filled(buf, sizeof(buf), 3));
	close_all(c);
	exit(0);
}

/*
 * Ends a child of fork. Not by _exit(): valgrind would then search the whole region for leaks, which the child has not
 * mapped, with a fault for each page.
 */
static _Noreturn void leave(void)
{
	execl("/bin/true", "true", (char *) NULL);
	_exit(1);
}

/* A child with its own endpoint sends to its parent's and to itself. */
static void own_child(struct ctx *c)
{
	static const struct setup plain;
	struct ctx own = { .rank = 0, .procs = 1 };
	unsigned char name[64];
	size_t len = sizeof(name);
	int in, out = 4711;

	open_all(&own, &plain);
	OK(fi_getname(&own.ep->fid, name, &len));
	CHECK(fi_av_insert(own.av, name, 1, &own.peer[0], 0, NULL) == 1);
	OK(fi_trecv(own.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	RETRY(&own, fi_tinject(own.ep, &out, sizeof(out), own.peer[0], 1));
	wait_comp(&own, own.rxcq);
	CHECK(in == out);
	/* The parent's endpoint, which the child must not end. */
	fi_close(&c->ep->fid);
	CHECK(fi_av_insert(own.av, shared(), 1, &own.peer[1], 0, NULL) == 1);
	RETRY(&own, fi_tinject(own.ep, &out, sizeof(out), own.peer[1], 2));
	close_all(&own);
	leave();
}

/*
 * Waits until the provider's thread runs: while it starts, it may hold a lock of a tool, which a child of fork then
 * holds forever (seen: gcc 12's AddressSanitizer).
 */
static void spin_heart(void)
{
	struct nm_layout_geometry g;
	uint8_t *layout = map_layout(&g);
	struct nm_slot *slots = (struct nm_slot *) (void *) (layout + g.slot_table);
	uint32_t i;

	for (i = 0; !__atomic_load_n(&slots[i].beat, __ATOMIC_ACQUIRE); i = (i + 1) % g.slots)
		usleep(100);
}

static void fork_opens(struct ctx *c)
{
	size_t len = 64;
	int in, i, status;
	pid_t pid;

	spin_heart();
	OK(fi_getname(&c->ep->fid, shared(), &len));
	for (i = 0; i < 5; i++) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
		fflush(NULL);
		pid = fork();
		if (!pid)
			own_child(c);
		in = 0;
		wait_comp(c, c->rxcq);
		CHECK(in == 4711);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	}
}

/* A child of the application does no harm, regardless of what it closes. */
static void forks(struct ctx *c)
{
	int in, i, status;
	pid_t pid;

	for (i = 0; i < 20; i++) {
		if (i % 5 == 0) {
			fflush(NULL);
			pid = fork();
			if (!pid) {
				fi_close(&c->ep->fid);
				leave();
			}
			CHECK(waitpid(pid, &status, 0) == pid);
			CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		}
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[!c->rank], 1, 0, NULL));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[!c->rank], 1));
		wait_comp(c, c->rxcq);
		CHECK(in == i);
	}
}

/* One rank more than there are slots. */
static void full(struct ctx *c)
{
	struct fid_ep *eps[8], *ep;
	int i, n = NM_LAYOUT_MIN_SLOTS - 1;

	for (i = 0; i <= n; i++) {
		OK(fi_endpoint(c->domain, c->info, &ep, NULL));
		OK(fi_ep_bind(ep, &c->av->fid, 0));
		OK(fi_ep_bind(ep, &c->txcq->fid, FI_TRANSMIT | FI_RECV));
		if (i < n)
			OK(fi_enable(ep));
		else
			CHECK(fi_enable(ep) == -FI_ENOSPC);
		eps[i] = ep;
	}
	for (i = 0; i <= n; i++)
		OK(fi_close(&eps[i]->fid));
}

/* The region's file has the right format, size and mode. */
static void file_region(struct ctx *c)
{
	const char *path = getenv("FI_IVSHMEM_REGION");
	struct nm_region_header h;
	struct stat st;
	int fd = open(path, O_RDONLY);
	void *map;

	CHECK(fd >= 0 && !fstat(fd, &st));
	CHECK((st.st_mode & 0777) == 0600);
	map = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED && !nm_region_read(map, (uint64_t) st.st_size, &h));
	munmap(map, (size_t) st.st_size);
	close(fd);
	(void) c;
}

/* Makes this many calls in 200 ms. */
static void poll_times(struct ctx *c, int calls)
{
	int i;

	for (i = 0; i < calls; i++) {
		progress(c);
		usleep(200000 / (unsigned int) calls);
	}
}

/*
 * A job that was stopped as a whole, for longer than the timeout, continues: a peer had no chance to send a heartbeat.
 * The third process stops the other two.
 */
static void stopped(struct ctx *c)
{
	struct {
		pid_t pid[2];
		uint32_t waiting, back, polled;
	} *s = shared();
	static uint8_t buf[1 << 20];
	int i;

	if (c->rank < 2)
		s->pid[c->rank] = getpid();
	barrier(c);
	if (c->rank == 2) {
		while (!__atomic_load_n(&s->waiting, __ATOMIC_ACQUIRE))
			usleep(1000);
		for (i = 0; i < 2; i++)
			kill(s->pid[i], SIGSTOP);
		usleep(2500000); /* longer than FI_IVSHMEM_TIMEOUT */
		__atomic_store_n(&s->back, 1, __ATOMIC_RELEASE);
		kill(s->pid[0], SIGCONT);
		while (!__atomic_load_n(&s->polled, __ATOMIC_ACQUIRE))
			usleep(1000);
		kill(s->pid[1], SIGCONT);
	} else if (c->rank == 0) {
		fill(buf, sizeof(buf), 3);
		RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[1], 1, NULL));
		/* It checks the other rank, every 256 calls and at most every 100 ms. */
		poll_times(c, 600);
		__atomic_store_n(&s->waiting, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&s->back, __ATOMIC_ACQUIRE))
			sched_yield();
		poll_times(c, 600);
		__atomic_store_n(&s->polled, 1, __ATOMIC_RELEASE);
		wait_comp(c, c->txcq);
	} else {
		while (!__atomic_load_n(&s->back, __ATOMIC_ACQUIRE))
			sched_yield();
		OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[0], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(filled(buf, sizeof(buf), 3));
	}
}

static time_t ahead; /* seconds that CLOCK_REALTIME is ahead of the kernel's in this process */

/*
 * Replaces libc's function, also for the provider: it reads a clock that is set before the kernel reads it. A wait
 * until shortly after the time read ends too late by that difference, or at once.
 */
int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int ret = (int) syscall(SYS_clock_gettime, clock, ts);

	if (!ret && clock == CLOCK_REALTIME)
		ts->tv_sec += __atomic_load_n(&ahead, __ATOMIC_RELAXED);
	return ret;
}

/*
 * One rank's clock is set back by an hour and its peer's forward by one. The peer waits longer than FI_IVSHMEM_TIMEOUT
 * for the rank, which computes, and still regards it as alive.
 */
static void clock_set(struct ctx *c)
{
	int in = 0, out = 4711;

	__atomic_store_n(&ahead, c->rank ? 3600 : -3600, __ATOMIC_RELAXED);
	barrier(c);
	if (c->rank) {
		usleep(5000000); /* silence is the test: no event ends the wait */
		RETRY(c, fi_tinject(c->ep, &out, sizeof(out), c->peer[0], 1));
	} else {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in == out);
	}
}

/* Makes later reads of another process's memory fail with EPERM, as under yama.ptrace_scope=1. */
static void filter_reading(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Sends one message of 1 MiB each way, and one more that is longer than a bounce buffer. */
static void talk(struct ctx *c)
{
	enum { LEN = 1 << 20 };
	char *buf = malloc(LEN);

	CHECK(buf);
	for (int round = 0; round < 4; round++) {
		size_t len = round < 2 ? LEN : 100000;

		if (c->rank == (round & 1)) {
			fill(buf, len, (unsigned int) round);
			RETRY(c, fi_tsend(c->ep, buf, len, NULL, c->peer[!c->rank], 3, NULL));
			wait_comp(c, c->txcq);
		} else {
			OK(fi_trecv(c->ep, buf, len, NULL, c->peer[!c->rank], 3, 0, NULL));
			wait_comp(c, c->rxcq);
			CHECK(filled(buf, len, (unsigned int) round));
		}
	}
	free(buf);
}

/*
 * Rank 0 waits for a neighbour whose memory it can no longer read, until it has checked several times whether that rank
 * is alive. It is, and their messages are sent through the region.
 */
static void unreadable(struct ctx *c, bool filter)
{
	uint64_t *polled = shared(), begin;
	int in = 0, out = 4711;

	talk(c);
	if (!c->rank && filter)
		filter_reading();
	if (c->rank && !filter)
		OK(prctl(PR_SET_DUMPABLE, 0));
	barrier(c);
	if (c->rank) {
		while (__atomic_load_n(polled, __ATOMIC_ACQUIRE) < 1000)
			usleep(1000);
		RETRY(c, fi_tinject(c->ep, &out, sizeof(out), c->peer[0], 1));
	} else {
		struct fi_cq_tagged_entry e;
		struct timespec ts;
		ssize_t n;

		OK(clock_gettime(CLOCK_MONOTONIC, &ts));
		begin = (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 1, 0, NULL));
		while ((n = fi_cq_read(c->rxcq, &e, 1)) == -FI_EAGAIN) {
			OK(clock_gettime(CLOCK_MONOTONIC, &ts));
			__atomic_store_n(polled, (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000 - begin,
					 __ATOMIC_RELEASE);
		}
		CHECK(n == 1 && in == out);
	}
	talk(c);
}

static void unreadable_filter(struct ctx *c)
{
	unreadable(c, true);
}

/* As an ordinary user, because root may read everything. */
static void unreadable_dumpable(struct ctx *c)
{
	enum { NOBODY = 65534 };
	static const struct setup plain;

	/* Load the provider, which that user may not be able to read. */
	fi_freeinfo(get_info(&plain));
	if (!geteuid())
		OK(setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY) || prctl(PR_SET_DUMPABLE, 1));
	open_all(c, &plain);
	exchange(c);
	unreadable(c, false);
	barrier(c);
	close_all(c);
}

/*
 * A rank that cannot be reached: the call that detects it fails, and so does a receive that only that rank could have
 * answered.
 */
static void no_way(struct ctx *c)
{
	struct ivs_addr addr;
	size_t len = sizeof(addr);
	fi_addr_t nobody;
	int in;

	OK(fi_getname(&c->ep->fid, &addr, &len));
	addr.id ^= 1;	   /* of another region */
	addr.core_len = 0; /* and without a core provider */
	CHECK(fi_av_insert(c->av, &addr, 1, &nobody, 0, NULL) == 1);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, nobody, 1, 0, &in));
	CHECK(fi_tsend(c->ep, &in, sizeof(in), NULL, nobody, 1, NULL) == -FI_EHOSTUNREACH);
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	CHECK(fi_tsend(c->ep, &in, sizeof(in), NULL, nobody, 1, NULL) == -FI_EIO);
}

/* The second of two jobs with different names cannot use the region of the first. */
static void other_job(struct ctx *c)
{
	static const struct setup plain;
	uint32_t *step = shared();

	setenv("FI_IVSHMEM_JOB", c->rank ? "second" : "first", 1);
	while (c->rank && __atomic_load_n(step, __ATOMIC_ACQUIRE) != 1)
		usleep(1000);
	c->info = get_info(&plain);
	OK(fi_fabric(c->info->fabric_attr, &c->fabric, NULL));
	if (c->rank) {
		CHECK(fi_domain(c->fabric, c->info, &c->domain, NULL) == -FI_EBUSY);
		__atomic_store_n(step, 2, __ATOMIC_RELEASE);
		return;
	}
	OK(fi_domain(c->fabric, c->info, &c->domain, NULL));
	__atomic_store_n(step, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(step, __ATOMIC_ACQUIRE) != 2)
		usleep(1000);
	OK(fi_close(&c->domain->fid));
}

/*
 * Two ranks exchange messages while a third writes at random into the first one's part of the region, then into all
 * parts. No rank may crash or hang; errors are expected.
 */
static void vandal(struct ctx *c)
{
	uint32_t *stop = shared();
	unsigned int seed = (unsigned int) getpid(), i, rounds = 0;
	struct fi_cq_tagged_entry e;
	static char buf[2][100000];
	char room[256];

	if (c->rank == 2) {
		struct nm_layout_geometry g;
		uint8_t *layout = map_layout(&g);

		for (i = 0; i < 300000; i++) {
			/* The rings and the tables of the first few slots. */
			uint64_t at, what = (uint64_t) rand_r(&seed) << (rand_r(&seed) % 33);

			switch (rand_r(&seed) % 4) {
			case 0:
				at = g.areas + (uint64_t) rand_r(&seed) % 4 * g.area_bytes + g.heap +
				     (uint64_t) rand_r(&seed) % 65536;
				break;
			case 1:
				at = g.conn_table + (uint64_t) rand_r(&seed) % 4 * g.slots * 16 +
				     (uint64_t) rand_r(&seed) % 64;
				break;
			case 2: at = g.mr_table + (uint64_t) rand_r(&seed) % 16384; break;
			default: at = g.slot_table + (uint64_t) rand_r(&seed) % 1024; break;
			}
			at &= ~7ULL;
			/* Often an almost valid value: one bit of the old value is changed. */
			if (rand_r(&seed) % 2)
				what = *(uint64_t *) (void *) (layout + at) ^ 1ULL << (rand_r(&seed) % 64);
			*(volatile uint64_t *) (void *) (layout + at) = what;
			if (i % 64 == 0)
				sched_yield();
		}
		__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
		_exit(0);
	}
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		size_t len = (size_t) rand_r(&seed) % 3 ? 8 : (size_t) rand_r(&seed) % sizeof(buf[0]);

		fi_trecv(c->ep, buf[0], sizeof(buf[0]), NULL, FI_ADDR_UNSPEC, 1, 0, NULL);
		fi_tsend(c->ep, buf[1], len, NULL, c->peer[!c->rank], 1, NULL);
		for (i = 0; i < 20; i++) {
			memset(room, 0, sizeof(room));
			if (fi_cq_read(c->rxcq, &e, 1) == -FI_EAVAIL)
				fi_cq_readerr(c->rxcq, (void *) room, 0);
			if (fi_cq_read(c->txcq, &e, 1) == -FI_EAVAIL)
				fi_cq_readerr(c->txcq, (void *) room, 0);
		}
		if (++rounds % 16 == 0)
			sched_yield();
	}
	_exit(0);
}

const struct test test_faults[] = {
	{ "file_region", 1, file_region },
	{ "stopped", 3, stopped, .env = { "FI_IVSHMEM_TIMEOUT=2000" } },
	{ "clock_set", 2, clock_set, .env = { "FI_IVSHMEM_TIMEOUT=2000" } },
	{ "unreadable_filter", 2, unreadable_filter, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
	{ "unreadable_dumpable", 2, unreadable_dumpable, .bare = true, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
	{ "no_way", 1, no_way },
	{ "other_job", 2, other_job, .bare = true },
	{ "killed", 3, killed, .killed = 1, .env = { "FI_IVSHMEM_TIMEOUT=2000" } },
	{ "killed_no_cma", 3, killed, .killed = 1, .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_TIMEOUT=2000" } },
	{ "killed_midway", 2, killed_midway, .env = { "FI_IVSHMEM_CMA_MAX=1048576" }, .killed = 1 },
	{ "killed_midway_no_cma", 2, killed_midway, .killed = 1,
	  .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_TIMEOUT=2000" } },
	{ "reborn", 1, reborn, .bare = true },
	{ "last_words", 2, last_words, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "forks", 2, forks },
	{ "fork_opens", 1, fork_opens },
	{ "full", 1, full, .env = { "FI_IVSHMEM_RANKS=4", "FI_IVSHMEM_TIMEOUT=1000" } },
	{ "vandal", 3, vandal, .killed = 1 },
	{ 0 }
};
