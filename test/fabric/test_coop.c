/* Large messages that both ends copy. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "lists.h"

#define LARGEST ((size_t) 9 << 20)

static const size_t sizes[] = {
	(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 100001, (256 << 10) + 4097, (512 << 10) - 1,
	1 << 20, (1 << 20) + 5, (3 << 20) + 4097, LARGEST - 3,
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

/* One after another, of each size, to receives posted before and after, from odd addresses. */
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
				usleep(2000);	/* or not: either order is right */
			OK(fi_trecv(c->ep, in + 3, len, NULL, c->peer[from], s, 0, in));
			if (round != 1)
				word(c, from);
			CHECK(wait_comp(c, c->rxcq).len == len);
			CHECK(filled(in + 3, len, seed) && !in[2] && !in[3 + len]);
		}
	free(out);
	free(in);
}

/* Many at once in both directions. */
static void coop_windows(struct ctx *c)
{
	enum { MANY = 6, LEN = (1 << 20) + 12345 };
	char *out = malloc((size_t) MANY * LEN), *in = calloc(MANY, LEN);

	CHECK(out && in);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < MANY; i++) {
			fill(out + (size_t) i * LEN, LEN, (unsigned int) (c->rank * 1000 + round * 10 + i));
			OK(fi_trecv(c->ep, in + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank],
				    (uint64_t) i, 0, NULL));
		}
		for (int i = 0; i < MANY; i++)
			RETRY(c, fi_tsend(c->ep, out + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank],
					  (uint64_t) i, NULL));
		for (int i = 0; i < MANY; i++)
			wait_comp(c, c->txcq);
		for (int i = 0; i < MANY; i++)
			wait_comp(c, c->rxcq);
		for (int i = 0; i < MANY; i++)
			CHECK(filled(in + (size_t) i * LEN, LEN,
				     (unsigned int) (!c->rank * 1000 + round * 10 + i)));
	}
	free(out);
	free(in);
}

/* A receive that is too short gets the message's start, and nothing behind it. */
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
 * A sender that does something else is not waited for, also where it came for the message
 * before; what it says later is no error.
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

/* process_vm_writev fails from now on, process_vm_readv does not. */
static void forbid_writing(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* A sender that may not write the receiver's memory: the receiver reads all. */
static void coop_refused(struct ctx *c)
{
	if (c->rank)
		forbid_writing();
	barrier(c);
	coop(c);
}

/* One of two is killed while both copy: what the other waits for ends, well or with an error. */
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
		/* Not by its own end: valgrind would search leaks in the region, for minutes. */
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

/* The control lines of all rings, which another VM can write. */
struct ctls {
	struct nm_ring_ctl *at[64];
	size_t count;
};

static struct ctls find_ctls(void)
{
	struct nm_layout_geometry g;
	uint8_t *layout = map_layout(&g);
	struct nm_conn *conn = (struct nm_conn *) (void *) (layout + g.conn_table);
	struct ctls found = { .count = 0 };

	for (uint32_t to = 0; to < g.slots; to++)
		for (uint32_t from = 0; from < g.slots; from++) {
			const struct nm_conn *c = &conn[(size_t) to * g.slots + from];

			if (c->ring && found.count < 64)
				found.at[found.count++] = (struct nm_ring_ctl *) (void *)
					(layout + g.areas + from * g.area_bytes +
					 (uint64_t) (c->ring - 1) * NM_LAYOUT_LINE);
		}
	CHECK(found.count);
	return found;
}

/* What two ranks and a third process, which plays another VM, share. */
enum { WORD_LEN = 256 << 10 };
struct word_test {
	uint32_t ready, received, stop;
	uint8_t before[WORD_LEN], in[WORD_LEN], after[WORD_LEN];
};
_Static_assert(sizeof(struct word_test) <= SHARED_BYTES, "it fits");

static bool untouched(const struct word_test *s)
{
	for (size_t i = 0; i < WORD_LEN; i++)
		if (((const volatile uint8_t *) s->before)[i] || ((const volatile uint8_t *) s->after)[i])
			return false;
	return true;
}

/*
 * Says again and again that nobody has taken any piece of the message that is under way; or nonsense: that
 * all pieces are taken, more than there are, or that the message is another one.
 */
static void change_words(struct word_test *s, const struct ctls *ctls, bool nonsense)
{
	unsigned int seed = 1;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		for (int n = 0; n < 10000; n++)
			for (size_t i = 0; i < ctls->count; i++) {
				uint64_t *word = &ctls->at[i]->coop;
				uint64_t is = __atomic_load_n(word, __ATOMIC_RELAXED), bits;

				if (!nonsense) {
					/*
					 * Only while it is of the same message: a receiver that finds another
					 * one's word waits for its sender, and this one may not come (below).
					 */
					__atomic_compare_exchange_n(word, &is, is & ~0xffffffffULL, false,
								    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
					continue;
				}
				bits = rand_r(&seed) % 4 ? (uint64_t) rand_r(&seed) % 8 << (rand_r(&seed) % 2 * 16) :
				       (uint64_t) rand_r(&seed) << 1;
				if (rand_r(&seed) % 64 == 0)
					bits ^= 1ULL << 32;
				__atomic_store_n(word, (is & ~0xffffffffULL) ^ bits, __ATOMIC_RELAXED);
			}
		/* Shown: the receiver need not go on for ever. */
		if (!untouched(s))
			return;
	}
}

/*
 * Another VM changes the word by which two ranks share a message: what lies around the
 * receive stays as it is, and the receive ends, whether its sender comes or not.
 */
static void changed_word(struct ctx *c, bool nonsense)
{
	enum { ROUNDS = 100 };
	struct word_test *s = shared();
	static char out[3 * WORD_LEN];
	struct ctls ctls;

	if (c->rank == 2) {
		while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) < 2)
			usleep(100);
		ctls = find_ctls();
		change_words(s, &ctls, nonsense);
		while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
			usleep(100);
		return;
	}
	/* Until both rings are there. */
	if (c->rank) {
		word(c, 0);
		spin_word(c, 0);
	} else {
		spin_word(c, 1);
		word(c, 1);
	}
	__atomic_add_fetch(&s->ready, 1, __ATOMIC_RELEASE);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		if (c->rank) {
			/* The message is the middle: a receiver that goes on reads what is behind it. */
			memset(out, (int) round, sizeof(out));
			RETRY(c, fi_tsend(c->ep, out + WORD_LEN, WORD_LEN, NULL, c->peer[0], 1, NULL));
			/* A receiver whose word says that the sender has taken a piece waits for it: not with nonsense. */
			while (!nonsense && round % 2 && __atomic_load_n(&s->received, __ATOMIC_ACQUIRE) != round) {
				CHECK(untouched(s));
				usleep(100);
			}
			wait_comp(c, c->txcq);
			spin_word(c, 0);
			continue;
		}
		OK(fi_trecv(c->ep, s->in, WORD_LEN, NULL, c->peer[1], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(untouched(s));
		__atomic_store_n(&s->received, round, __ATOMIC_RELEASE);
		word(c, 1);
	}
	if (!c->rank)
		__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
}

static void coop_word(struct ctx *c)
{
	changed_word(c, false);
}

static void coop_word_nonsense(struct ctx *c)
{
	changed_word(c, true);
}

const struct test test_coop[] = {
	{ "coop", 2, coop },
	{ "coop_never", 2, coop, .env = { "FI_IVSHMEM_CMA_COOP=0" } },
	{ "coop_windows", 2, coop_windows },
	{ "coop_cut", 2, coop_cut },
	{ "coop_busy", 2, coop_busy },
	{ "coop_refused", 2, coop_refused },
	{ "coop_word", 3, coop_word },
	{ "coop_word_nonsense", 3, coop_word_nonsense },
	{ "coop_sender_killed", 2, coop_sender_killed, .killed = 1 },
	{ "coop_receiver_killed", 2, coop_receiver_killed, .killed = 1 },
	{ 0 }
};
