/* Large messages that both ends copy. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../../fabric/base/message.h"
#include "forge.h"
#include "lists.h"

#define LARGEST ((size_t) 9 << 20)

static const size_t sizes[] = {
	(64 << 10) - 1,	 64 << 10, (64 << 10) + 1, 100001,	     (256 << 10) + 4097,
	(512 << 10) - 1, 1 << 20,  (1 << 20) + 5,  (3 << 20) + 4097, LARGEST - 3,
};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static char *memory(int value)
{
	char *m = malloc(LARGEST + 64);

	CHECK(m);
	memset(m, value, LARGEST + 64);
	return m;
}

static void word(struct ctx *c, int to)
{
	RETRY(c, fi_tinject(c->ep, &to, sizeof(to), c->peer[to], 77));
}

static void spin_word(struct ctx *c, int from)
{
	int in;

	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[from], 77, 0, NULL));
	wait_comp(c, c->rxcq);
	CHECK(in == c->rank);
}

/* Messages one after another, of each size, to receives posted before and after, from odd addresses. */
static void coop(struct ctx *c)
{
	char *out = memory(1), *in = memory(2);
	unsigned int seed = 0;

	for (int round = 0; round < 3; round++)
		for (size_t s = 0; s < SIZES; s++) {
			int from = (int) (s & 1);
			size_t len = sizes[s] - (size_t) round;

			seed++;
			if (c->rank == from) {
				fill(out + round, len, seed);
				if (round != 1)
					spin_word(c, !from);
				RETRY(c, fi_tsend(c->ep, out + round, len, NULL, c->peer[!from], s, NULL));
				wait_comp(c, c->txcq);
				continue;
			}
			memset(in, 0, LARGEST + 64);
			if (round == 1)
				usleep(2000); /* or not: either order is right */
			OK(fi_trecv(c->ep, in + 3, len, NULL, c->peer[from], s, 0, in));
			if (round != 1)
				word(c, from);
			CHECK(wait_comp(c, c->rxcq).len == len);
			CHECK(filled(in + 3, len, seed) && !in[2] && !in[3 + len]);
		}
	free(out);
	free(in);
}

/* Many messages at once in both directions. */
static void coop_windows(struct ctx *c)
{
	enum { MANY = 6, LEN = (1 << 20) + 12345 };
	char *out = malloc((size_t) MANY * LEN), *in = calloc(MANY, LEN);

	CHECK(out && in);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < MANY; i++) {
			fill(out + (size_t) i * LEN, LEN, (unsigned int) (c->rank * 1000 + round * 10 + i));
			OK(fi_trecv(c->ep, in + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank], (uint64_t) i, 0, NULL));
		}
		for (int i = 0; i < MANY; i++)
			RETRY(c, fi_tsend(c->ep, out + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank], (uint64_t) i,
					  NULL));
		for (int i = 0; i < MANY; i++)
			wait_comp(c, c->txcq);
		for (int i = 0; i < MANY; i++)
			wait_comp(c, c->rxcq);
		for (int i = 0; i < MANY; i++)
			CHECK(filled(in + (size_t) i * LEN, LEN, (unsigned int) (!c->rank * 1000 + round * 10 + i)));
	}
	free(out);
	free(in);
}

/* A receive that is too short gets the message's start, and no bytes after it. */
static void coop_cut(struct ctx *c)
{
	enum { LEN = 3 << 20, CUT = (2 << 20) + 77 };
	char *buf = memory(3);

	for (int round = 0; round < 4; round++) {
		if (c->rank) {
			fill(buf, LEN, (unsigned int) round);
			RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 1, NULL));
			wait_comp(c, c->txcq);
			continue;
		}
		memset(buf, 0, LEN);
		OK(fi_trecv(c->ep, buf, CUT, NULL, c->peer[1], 1, 0, buf));
		CHECK(wait_err(c, c->rxcq).err == FI_ETRUNC);
		CHECK(filled(buf, CUT, (unsigned int) round));
		for (size_t i = CUT; i < LEN; i++)
			CHECK(!buf[i]);
	}
	free(buf);
}

/*
 * The receiver does not wait for a busy sender, also if it helped with the message before; its later messages are not
 * errors.
 */
static void coop_busy(struct ctx *c)
{
	uint32_t *received = shared();
	char *buf = memory(4);

	for (uint32_t round = 1; round <= 12; round++) {
		size_t len = round % 3 ? 512 << 10 : 5 << 20;
		bool busy = round % 2;

		if (c->rank) {
			fill(buf, len, round);
			RETRY(c, fi_tsend(c->ep, buf, len, NULL, c->peer[0], 1, NULL));
			while (busy && __atomic_load_n(received, __ATOMIC_ACQUIRE) != round)
				usleep(100);
			wait_comp(c, c->txcq);
			continue;
		}
		OK(fi_trecv(c->ep, buf, len, NULL, c->peer[1], 1, 0, buf));
		wait_comp(c, c->rxcq);
		CHECK(filled(buf, len, round));
		__atomic_store_n(received, round, __ATOMIC_RELEASE);
	}
	barrier(c);
	free(buf);
}

/* Makes later calls of process_vm_writev fail: SECCOMP_RET_ERRNO | EPERM, or SECCOMP_RET_TRAP. */
static void filter_writing(uint32_t action)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* A sender that may not write the receiver's memory: the receiver reads the whole message. */
static void coop_refused(struct ctx *c)
{
	if (c->rank)
		filter_writing(SECCOMP_RET_ERRNO | EPERM);
	barrier(c);
	coop(c);
}

/* One of two ranks is killed while both copy: the other's operation ends, successfully or with an error. */
static void killed_while(struct ctx *c, int dies)
{
	enum { LEN = 256 << 20 };
	struct fid_cq *cq = c->rank ? c->txcq : c->rxcq;
	char *buf = malloc(LEN);

	CHECK(buf);
	memset(buf, 1, LEN);
	if (!c->rank)
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[1], 1, 0, buf));
	barrier(c);
	if (c->rank == dies && !fork()) {
		usleep(5000);
		kill(getppid(), SIGKILL);
		/* Not by returning: valgrind would search the region for leaks, for minutes. */
		execl("/bin/true", "true", (char *) NULL);
		_exit(1);
	}
	if (c->rank)
		RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 1, buf));
	for (;;) {
		struct fi_cq_err_entry err = { 0 };
		struct fi_cq_tagged_entry e;
		ssize_t n = fi_cq_read(cq, &e, 1);

		CHECK(n == 1 || n == -FI_EAVAIL || n == -FI_EAGAIN);
		if (n == -FI_EAVAIL)
			CHECK(fi_cq_readerr(cq, &err, 0) == 1 && err.err == FI_EIO);
		if (n != -FI_EAGAIN && c->rank != dies)
			break;
	}
	free(buf);
}

static void coop_sender_killed(struct ctx *c)
{
	killed_while(c, 1);
}

static void coop_receiver_killed(struct ctx *c)
{
	killed_while(c, 0);
}

/* Memory that two ranks share with a third process, which plays another VM. */
struct told {
	uint32_t named, step;
	uint8_t addr[2][64];
};
enum { COPIES = 1, LIE_TOLD, OVER }; /* steps */

static struct told *told;

static uint32_t step(void)
{
	return __atomic_load_n(&told->step, __ATOMIC_ACQUIRE);
}

/* Replaces a system call that the filter traps: the sender stays in the middle of its copy until the test is over. */
static void copy_stuck(int sig)
{
	(void) sig;
	__atomic_store_n(&told->step, COPIES, __ATOMIC_RELEASE);
	while (step() != OVER)
		usleep(100);
	kill(getpid(), SIGKILL);
}

/*
 * While the sender writes its part, another VM claims in its name that it has written it. The receiver keeps waiting,
 * because that part of its memory is not written.
 */
static void coop_end_forged(struct ctx *c)
{
	enum { LEN = 32 << 20 };
	struct ivs_rendezvous_read sent;
	struct fi_cq_tagged_entry e;
	struct forge f;
	size_t len = 64;
	uint64_t tag;
	bool received = false;
	char *buf;

	told = shared();
	if (c->rank < 2)
		OK(fi_getname(&c->ep->fid, told->addr[c->rank], &len));
	__atomic_add_fetch(&told->named, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&told->named, __ATOMIC_ACQUIRE) < 3)
		usleep(100);
	if (c->rank == 2) {
		while (step() != COPIES)
			usleep(100);
		f = forge_next(told->addr[1], told->addr[0], IVS_OP_TAGGED_RTS, &tag, &sent, IVS_RTS_SHOWN_BYTES);
		forge(&f, &told->step, IVS_OP_COOP_END, 0, sent.id, NULL, 0);
		__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&told->step, LIE_TOLD, __ATOMIC_RELEASE);
		return;
	}
	buf = malloc(LEN);
	CHECK(buf);
	memset(buf, c->rank, LEN);
	if (c->rank) {
		CHECK(signal(SIGSYS, copy_stuck) != SIG_ERR);
		filter_writing(SECCOMP_RET_TRAP);
	}
	/* Repeat if the receiver is done before its sender helps. */
	for (;;) {
		if (c->rank) {
			RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 1, NULL));
			wait_comp(c, c->txcq);
			continue;
		}
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[1], 1, 0, NULL));
		while (step() != LIE_TOLD && !(received = fi_cq_read(c->rxcq, &e, 1) == 1))
			;
		if (!received)
			break;
		CHECK(!step());
	}
	/* The receiver reads the forged message, and anything after it. */
	for (int i = 0; i < 1000; i++)
		CHECK(fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
	__atomic_store_n(&told->step, OVER, __ATOMIC_RELEASE);
	free(buf); /* its sender never continues */
}

const struct test test_coop[] = { { "coop", 2, coop },
				  { "coop_never", 2, coop, .env = { "FI_IVSHMEM_CMA_COOP=0" } },
				  { "coop_windows", 2, coop_windows },
				  { "coop_cut", 2, coop_cut },
				  { "coop_busy", 2, coop_busy },
				  { "coop_refused", 2, coop_refused },
				  { "coop_end_forged", 3, coop_end_forged, .killed = 1 },
				  { "coop_sender_killed", 2, coop_sender_killed, .killed = 1 },
				  { "coop_receiver_killed", 2, coop_receiver_killed, .killed = 1 },
				  { 0 } };
