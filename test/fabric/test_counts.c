/*
 * A hostile rank on another host lies in the counts that its messages carry: the message's own number, and the number
 * of the receiver's messages that it has handled (fabric/remote/wire.c). The second count is used only over verbs, with
 * FABRIC_CORE='verbs;ofi_rxm'. The victim's communication with all other ranks is not affected.
 */
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include "lists.h"
#include "raw.h"
#include "../../fabric/tune.h"

enum { MANY = IVS_CORE_BUFFERS + 10 }; /* more messages than the victim has buffers for */

/* Memory that the processes share. */
struct told {
	uint32_t step;
	pid_t pid; /* of the hostile one */
	uint8_t victim[64], hostile[64];
};

/* Sleeps until a step is reached, without making progress. */
static void await_step(uint32_t *step, uint32_t want)
{
	uint32_t now;

	while ((now = __atomic_load_n(step, __ATOMIC_ACQUIRE)) < want)
		syscall(SYS_futex, step, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void reach(uint32_t *step, uint32_t now)
{
	__atomic_store_n(step, now, __ATOMIC_RELEASE);
	syscall(SYS_futex, step, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Waits for a step of others that need this rank's progress. */
static void serve(struct ctx *c, struct told *s, uint32_t want)
{
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < want)
		progress(c);
}

/* Sends a short tagged message with a number chosen by the sender. */
static void say(struct raw *r, uint64_t tag, uint32_t seq, uint32_t word)
{
	r->seq = seq;
	raw_send(r, IVS_OP_TAGGED, 0, tag, NULL, 0, &word, sizeof(word));
}

static void hears(struct ctx *c, uint64_t tag, uint32_t word)
{
	uint32_t in = 0;

	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, tag, 0, &in));
	CHECK(wait_comp(c, c->rxcq).op_context == &in);
	CHECK(in == word);
}

/* The lies about the number of handled messages, relative to the truth: more, or less. */
static const uint32_t lies[] = { 1, 1000, 0x80000000, 0xffffffff };
enum { LIES = sizeof(lies) / sizeof(lies[0]) };

/* Steps of a lie. */
enum { BEGUN, KNOWN, SPOKEN, TRUE_SO_FAR, LIED, STEPS };

/*
 * Runs the hostile rank. It is killed in the end, because libfabric 1.17's ofi_rxm over verbs does not survive a
 * message to a closed endpoint.
 */
static void lies_about_handled(struct ctx *c, struct told *s, uint32_t base, uint32_t lie)
{
	struct fi_cq_tagged_entry e;
	struct ivs_addr mine;
	struct raw r;

	serve(c, s, base + BEGUN);
	raw_open(&r, s->victim);
	raw_hello(&r, TRUE_ADDRESS);
	mine = raw_address(&r, TRUE_ADDRESS);
	memcpy(s->hostile, &mine, sizeof(mine));
	s->pid = getpid();
	reach(&s->step, base + KNOWN);
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < base + SPOKEN)
		fi_cq_read(r.cq, &e, 1);
	r.seen = 1;
	say(&r, 5, 0, 1);
	await_step(&s->step, base + TRUE_SO_FAR);
	r.seen = 2 + lie;
	say(&r, 1, 1, lie);
	reach(&s->step, base + LIED);
	pause();
}

/*
 * Runs the victim. Its second message is sent without a completion, because the hostile rank has confirmed the first
 * one. The hostile rank has lied about the second one, and is killed without the victim's progress in between, so that
 * no question is sent while its device would answer. If the victim believed the lie, nothing would end the last
 * receive.
 */
static void is_lied_to(struct ctx *c, struct told *s, uint32_t base, uint32_t lie)
{
	struct pollfd end = { .events = POLLIN };
	fi_addr_t hostile;
	uint32_t in;

	reach(&s->step, base + BEGUN);
	serve(c, s, base + KNOWN);
	CHECK(fi_av_insert(c->av, s->hostile, 1, &hostile, 0, NULL) == 1);
	RETRY(c, fi_tinject(c->ep, &lie, sizeof(lie), hostile, 7));
	reach(&s->step, base + SPOKEN);
	hears(c, 5, 1);
	reach(&s->step, base + TRUE_SO_FAR);
	await_step(&s->step, base + LIED);
	RETRY(c, fi_tinject(c->ep, &lie, sizeof(lie), hostile, 7));
	hears(c, 1, lie);
	end.fd = (int) syscall(SYS_pidfd_open, s->pid, 0);
	CHECK(end.fd >= 0 && !kill(s->pid, SIGKILL) && poll(&end, 1, -1) == 1);
	close(end.fd);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, hostile, 2, 0, &in));
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
}

static void handled(struct ctx *c)
{
	struct told *s = shared();
	size_t len = sizeof(s->victim);
	uint32_t i;

	if (!c->rank)
		OK(fi_getname(&c->ep->fid, s->victim, &len));
	barrier(c);
	for (i = 0; i < LIES; i++)
		if (!c->rank)
			is_lied_to(c, s, i * STEPS + 1, lies[i]);
		else if (c->rank == (int) i + 1)
			lies_about_handled(c, s, i * STEPS + 1, lies[i]);
}

/* Messages with old numbers, and with numbers too far ahead, are ignored. */
static void numbers(struct raw *r)
{
	static const uint32_t far[] = { IVS_CORE_BUFFERS + 1, 1000, 0x7fffffff, 0x80000000, 0xffffffff };

	raw_hello(r, TRUE_ADDRESS);
	say(r, 3, 0, 1);
	say(r, 3, 0, 2);
	for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++)
		say(r, 3, 1 + far[i], 3);
	say(r, 3, 1, 4);
}

/* Each message waits for one that never arrives. */
static void gap(struct raw *r)
{
	int i;

	raw_hello(r, TRUE_ADDRESS);
	for (i = 0; i < MANY; i++)
		say(r, 3, (uint32_t) i % IVS_CORE_BUFFERS + 1, 5);
}

/* Their sender was never announced. */
static void stranger(struct raw *r)
{
	int i;

	for (i = 0; i < MANY; i++)
		say(r, 3, (uint32_t) i, 6);
}

static void (*const order[])(struct raw *r) = { numbers, gap, stranger };
enum { ORDERS = sizeof(order) / sizeof(order[0]), HONEST };

/* Each hostile rank sends in its own wrong order. The honest rank's messages arrive. */
static void in_disorder(struct ctx *c)
{
	struct told *s = shared();
	size_t len = sizeof(s->victim);
	struct raw r;
	uint32_t i;

	if (!c->rank)
		OK(fi_getname(&c->ep->fid, s->victim, &len));
	for (i = 0; i < ORDERS; i++) {
		barrier(c);
		if (c->rank == (int) i + 1) {
			raw_open(&r, s->victim);
			order[i](&r);
			reach(&s->step, i + 1);
		} else if (!c->rank) {
			if (order[i] == numbers) {
				hears(c, 3, 1);
				hears(c, 3, 4);
			}
			serve(c, s, i + 1);
			hears(c, 4, i);
		} else {
			serve(c, s, i + 1);
			if (c->rank == HONEST)
				RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[0], 4));
		}
		barrier(c);
	}
}

const struct test test_counts[] = { { "hosts_lie_handled", LIES + 1, handled, .per_host = 1, .killed = LIES,
				      .env = { "FI_IVSHMEM_CORE=" RAW_CORE, "FI_IVSHMEM_TIMEOUT=1000" } },
				    { "hosts_lie_order", HONEST + 1, in_disorder, .per_host = 1,
				      .env = { "FI_IVSHMEM_CORE=" RAW_CORE } },
				    { 0 } };
