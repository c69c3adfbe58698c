/*
 * Ranks on several hosts, each with a region: large messages are announced, and their receiver reads them through the
 * core provider. test/mpi/alone_test.go also runs these on libfabric 2.
 */
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../fabric/tune.h"
#include "lists.h"

#define HOSTS .env = { "FI_IVSHMEM_CORE=auto" }

/* Below and above the length from which a message is read. */
static const size_t sizes[] = {
	8, 4096, 32768, 32769, IVS_CORE_READ_MIN - 1, IVS_CORE_READ_MIN, IVS_CORE_READ_MIN + 1, 300001, 2097153
};
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST 2097153

/* Closes the endpoint and returns how many messages this process has read, from the endpoint's report. */
static unsigned long close_and_count(struct ctx *c)
{
	unsigned long ranks, messages, reads = 0;
	char text[8192], *at;
	int err, p[2], found = 0;
	size_t got = 0;
	ssize_t n;

	err = dup(STDERR_FILENO);
	CHECK(err >= 0 && !pipe(p) && dup2(p[1], STDERR_FILENO) >= 0);
	close(p[1]);
	close_all(c);
	CHECK(dup2(err, STDERR_FILENO) >= 0);
	close(err);
	while ((n = read(p[0], text + got, sizeof(text) - 1 - got)) > 0)
		got += (size_t) n;
	text[got] = 0;
	at = strstr(text, "ranks of other VMs, ");
	if (at)
		found = sscanf(at,
			       "ranks of other VMs, %*u lines; %lu ranks over the core provider, %lu messages, %lu "
			       "direct reads",
			       &ranks, &messages, &reads);
	CHECK(found == 3);
	close(p[0]);
	return reads;
}

/* Each way to send, to a receive that is early or late, complete or in pieces, directed or from any source. */
static void reads(struct ctx *c)
{
	static const struct setup plain;
	uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST + 16);
	unsigned long large = 0;
	int from = !c->rank, way;
	size_t i;

	open_all(c, &plain);
	exchange(c);
	for (i = 0; i < SIZES; i++)
		for (way = 0; way < 8; way++) {
			size_t len = sizes[i], cut = len / 3;
			bool late = way & 1, tagged = way & 2, whole = way & 4;
			struct iovec two[2] = { { in, cut }, { in + cut + 16, len - cut } };
			uint64_t tag = 100 * i + (uint64_t) way;
			fi_addr_t src = way % 3 ? FI_ADDR_UNSPEC : c->peer[from];
			struct fi_cq_tagged_entry e;

			fill(out, len, (unsigned int) (way + c->rank));
			memset(in, 0xee, len + 16);
			barrier(c);
			if (late && tagged)
				RETRY(c, fi_tsenddata(c->ep, out, len, NULL, tag << 32, c->peer[from], tag, out));
			else if (late)
				RETRY(c, fi_senddata(c->ep, out, len, NULL, tag << 32, c->peer[from], out));
			if (late)
				barrier(c);
			if (tagged)
				OK(whole ? fi_trecv(c->ep, in, len, NULL, src, tag, 0, in)
					 : fi_trecvv(c->ep, two, NULL, 2, src, tag, 0, in));
			else
				OK(whole ? fi_recv(c->ep, in, len, NULL, src, in)
					 : fi_recvv(c->ep, two, NULL, 2, src, in));
			if (!late && tagged)
				RETRY(c, fi_tsenddata(c->ep, out, len, NULL, tag << 32, c->peer[from], tag, out));
			else if (!late)
				RETRY(c, fi_senddata(c->ep, out, len, NULL, tag << 32, c->peer[from], out));
			CHECK(wait_comp(c, c->txcq).op_context == out);
			e = wait_comp_src(c, c->rxcq, &src);
			CHECK(e.op_context == in && e.len == len && e.data == tag << 32 && src == c->peer[from]);
			if (!whole)
				memmove(in + cut, in + cut + 16, len - cut);
			CHECK(filled(in, len, (unsigned int) (way + from)));
			large += len >= IVS_CORE_READ_MIN;
		}
	barrier(c);
	CHECK(close_and_count(c) == large);
	free(in);
	free(out);
}

/*
 * One large message from each of the other ranks, through the region and from another host, to receives from any source
 * that were posted before or after; other receives are cancelled in between.
 */
static void anybody(struct ctx *c)
{
	enum { LEN = 200000 };
	uint8_t *out = malloc(LEN), *in = malloc((size_t) MAX_PROCS * LEN);
	struct fi_cq_tagged_entry e;
	bool seen[MAX_PROCS];
	fi_addr_t src;
	int round, i, k;

	for (round = 0; round < 4; round++) {
		memset(seen, 0, sizeof(seen));
		fill(out, LEN, (unsigned int) (c->rank + round));
		/* A receive that no message matches is cancelled while messages arrive. */
		OK(fi_trecv(c->ep, out, 0, NULL, FI_ADDR_UNSPEC, 1000, 0, seen));
		for (i = 0; round % 2 && i < c->procs - 1; i++)
			OK(fi_trecv(c->ep, in + i * LEN, LEN, NULL, FI_ADDR_UNSPEC, 0, 255, in + i * LEN));
		barrier(c);
		for (i = 0; i < c->procs; i++)
			if (i != c->rank)
				RETRY(c, fi_tsend(c->ep, out, LEN, NULL, c->peer[i], (uint64_t) c->rank, NULL));
		OK(fi_cancel(&c->ep->fid, seen));
		CHECK(wait_err(c, c->rxcq).err == FI_ECANCELED);
		for (i = 0; round % 2 == 0 && i < c->procs - 1; i++)
			OK(fi_trecv(c->ep, in + i * LEN, LEN, NULL, FI_ADDR_UNSPEC, 0, 255, in + i * LEN));
		for (i = 0; i < c->procs - 1; i++) {
			e = wait_comp_src(c, c->rxcq, &src);
			CHECK(e.tag < (uint64_t) c->procs && src == c->peer[e.tag] && e.len == LEN && !seen[e.tag]);
			seen[e.tag] = true;
			CHECK(filled(e.op_context, LEN, (unsigned int) e.tag + (unsigned int) round));
		}
		for (k = 0; k < c->procs - 1; k++)
			wait_comp(c, c->txcq);
		barrier(c);
	}
	free(in);
	free(out);
}

/* More messages at once than the core provider has room for, received in reverse order. */
static void many(struct ctx *c)
{
	enum { COUNT = 300, LEN = IVS_CORE_READ_MIN + 1000 };
	uint8_t *out = malloc((size_t) COUNT * LEN), *in = calloc(COUNT, LEN);
	int i;

	for (i = 0; i < COUNT; i++) {
		fill(out + (size_t) i * LEN, LEN, (unsigned int) (i + c->rank));
		RETRY(c, fi_tsend(c->ep, out + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank], (uint64_t) i, NULL));
	}
	barrier(c);
	for (i = COUNT - 1; i >= 0; i--)
		OK(fi_trecv(c->ep, in + (size_t) i * LEN, LEN, NULL, c->peer[!c->rank], (uint64_t) i, 0, NULL));
	for (i = 0; i < COUNT; i++) {
		wait_comp(c, c->rxcq);
		wait_comp(c, c->txcq);
	}
	for (i = 0; i < COUNT; i++)
		CHECK(filled(in + (size_t) i * LEN, LEN, (unsigned int) (i + !c->rank)));
	free(in);
	free(out);
}

/* The rank that makes progress now, or the death of one. */
enum { SENDER, RECEIVER, DEATH };

/*
 * Makes one step of progress: in this many calls the core provider is polled at least once. It does not yield, because
 * steps are short.
 */
static void take_turn(struct ctx *c, volatile const uint8_t *first)
{
	struct fi_cq_tagged_entry e;
	int i;

	for (i = 0; i < 1024 && (!first || *first == 2); i++)
		fi_cq_read(c->rxcq, &e, 0);
}

/* Waits for one of two steps, and returns it. It sleeps, so that a busy machine runs the other process. */
static uint32_t await_turn(uint32_t *turn, uint32_t one, uint32_t other)
{
	uint32_t now;

	while ((now = __atomic_load_n(turn, __ATOMIC_ACQUIRE)) != one && now != other)
		syscall(SYS_futex, turn, FUTEX_WAIT, now, NULL, NULL, 0);
	return now;
}

static void hand_over(uint32_t *turn, uint32_t next)
{
	__atomic_store_n(turn, next, __ATOMIC_RELEASE);
	syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * The sender is killed while a message is read. The two ranks make progress alternately, and the receiver's ends with
 * the first bytes: no more of the message is in flight than sockets hold, so that it cannot have been received
 * completely.
 */
static void killed(struct ctx *c)
{
	enum { LEN = 128 << 20 };
	uint32_t *turn = shared();
	volatile uint8_t *first;
	uint8_t *buf = malloc(LEN);
	bool sent = false;

	memset(buf, c->rank ? 2 : 1, LEN);
	first = buf;
	if (c->rank)
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[0], 1, 0, buf));
	barrier(c);
	if (c->rank) {
		while (*first == 2) {
			await_turn(turn, RECEIVER, RECEIVER);
			take_turn(c, first);
			hand_over(turn, *first == 2 ? SENDER : DEATH);
		}
		CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	} else {
		while (await_turn(turn, SENDER, DEATH) == SENDER) {
			sent = sent || !fi_tsend(c->ep, buf, LEN, NULL, c->peer[1], 1, buf);
			take_turn(c, NULL);
			hand_over(turn, RECEIVER);
		}
		raise(SIGKILL);
	}
	free(buf);
}

/*
 * The receiver is killed while it reads a message. Its sender sends nothing more, and notices the death nevertheless:
 * its message fails, and so does the receive of the dead rank's answer.
 */
static void receiver_killed(struct ctx *c)
{
	enum { LEN = 128 << 20 };
	static uint8_t answer[8];
	uint32_t *turn = shared();
	volatile uint8_t *first;
	uint8_t *buf = malloc(LEN);
	bool sent = false;

	memset(buf, c->rank ? 2 : 1, LEN);
	first = buf;
	if (c->rank)
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[0], 1, 0, buf));
	else
		OK(fi_trecv(c->ep, answer, sizeof(answer), NULL, c->peer[1], 2, 0, answer));
	barrier(c);
	if (!c->rank) {
		while (await_turn(turn, SENDER, DEATH) == SENDER) {
			sent = sent || !fi_tsend(c->ep, buf, LEN, NULL, c->peer[1], 1, buf);
			take_turn(c, NULL);
			hand_over(turn, RECEIVER);
		}
		CHECK(wait_err(c, c->txcq).err == FI_EIO);
		CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	} else {
		while (*first == 2) {
			await_turn(turn, RECEIVER, RECEIVER);
			take_turn(c, first);
			hand_over(turn, *first == 2 ? SENDER : DEATH);
		}
		raise(SIGKILL);
	}
	free(buf);
}

/*
 * A receiver that does nothing for longer than the timeout of dead ranks still exists: it is probed several times in
 * that period.
 */
static void receiver_late(struct ctx *c)
{
	enum { LEN = 4 << 20 };
	static uint8_t answer[8], none[8];
	uint8_t *buf = malloc(LEN);
	uint32_t *turn = shared();
	struct timespec start, now;

	memset(buf, c->rank ? 2 : 1, LEN);
	/* The first messages connect the two ranks, for which both make progress. */
	OK(fi_trecv(c->ep, answer, sizeof(answer), NULL, c->peer[!c->rank], 3, 0, answer));
	RETRY(c, fi_tsend(c->ep, none, sizeof(none), NULL, c->peer[!c->rank], 3, none));
	CHECK(wait_comp(c, c->txcq).op_context == none);
	CHECK(wait_comp(c, c->rxcq).op_context == answer);
	barrier(c);
	if (!c->rank) {
		OK(fi_trecv(c->ep, answer, sizeof(answer), NULL, c->peer[1], 2, 0, answer));
		RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[1], 1, buf));
		clock_gettime(CLOCK_MONOTONIC, &start);
		do {
			take_turn(c, NULL);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (now.tv_sec - start.tv_sec < 3);
		hand_over(turn, RECEIVER);
		CHECK(wait_comp(c, c->txcq).op_context == buf);
		CHECK(wait_comp(c, c->rxcq).op_context == answer);
	} else {
		await_turn(turn, RECEIVER, RECEIVER);
		OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[0], 1, 0, buf));
		CHECK(wait_comp(c, c->rxcq).len == LEN);
		CHECK(buf[0] == 1 && buf[LEN - 1] == 1);
		RETRY(c, fi_tsend(c->ep, none, sizeof(none), NULL, c->peer[0], 2, none));
		CHECK(wait_comp(c, c->txcq).op_context == none);
	}
	free(buf);
}

/*
 * Exchanges messages between the two ranks, alternately and simultaneously: short messages are then sent without a
 * completion if the core provider supports it.
 */
static void talk(struct ctx *c, int other, int rounds)
{
	int in, i;

	for (i = 0; i < rounds; i++) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[other], 7, 0, &in));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[other], 7));
		CHECK(wait_comp(c, c->rxcq).op_context == &in);
		CHECK(in == i);
	}
}

/*
 * Short and long messages with one tag, more at once than there is room for: each receive gets its message in order and
 * complete.
 */
static void in_order(struct ctx *c)
{
	static const size_t lens[] = {
		8, 0, 120, 160, 161, 511, 512, 4000, 8, 16384, 8, 16600, 16601, 20000, 8, 64, IVS_CORE_READ_MIN + 1, 8
	};
	enum { COUNT = 1300, MOST = IVS_CORE_READ_MIN + 1, KINDS = sizeof(lens) / sizeof(lens[0]) };
	uint8_t *out = malloc((size_t) KINDS * MOST), *in = malloc(MOST);
	int from = !c->rank, sent = 0, got = 0, done = 0;
	struct fi_cq_tagged_entry e;
	bool posted = false;
	ssize_t n;
	int i;

	for (i = 0; i < KINDS; i++)
		fill(out + (size_t) i * MOST, lens[i], (unsigned int) (i + c->rank));
	talk(c, from, 10);
	while (sent < COUNT || got < COUNT || done < COUNT) {
		if (sent < COUNT) {
			n = fi_tsenddata(c->ep, out + (size_t) (sent % KINDS) * MOST, lens[sent % KINDS], NULL,
					 (uint64_t) sent, c->peer[from], 9, NULL);
			CHECK(!n || n == -FI_EAGAIN);
			sent += !n;
		}
		if (!posted && got < COUNT) {
			OK(fi_trecv(c->ep, in, MOST, NULL, got % 2 ? FI_ADDR_UNSPEC : c->peer[from], 9, 0, in));
			posted = true;
		}
		n = fi_cq_read(c->txcq, &e, 1);
		CHECK(n == 1 || n == -FI_EAGAIN);
		done += n == 1;
		n = fi_cq_read(c->rxcq, &e, 1);
		CHECK(n == 1 || n == -FI_EAGAIN);
		if (n != 1)
			continue;
		CHECK(e.data == (uint64_t) got && e.len == lens[got % KINDS]);
		CHECK(filled(in, e.len, (unsigned int) (got % KINDS + from)));
		posted = false;
		got++;
	}
	free(in);
	free(out);
}

/*
 * The last short message arrives, although its sender closes at once and its receiver does nothing in the meantime.
 * FABRIC_LOSE is a command after which the network loses the first packet: the message, which the sender's device has
 * to send again.
 */
static void last_word(struct ctx *c)
{
	static const struct setup plain;
	const char *lose = getenv("FABRIC_LOSE");
	uint32_t *left = shared();
	int in, i = 0;

	open_all(c, &plain);
	exchange(c);
	talk(c, !c->rank, 10);
	/*
	 * With this the sender knows that all its messages have been handled: the last one is sent without a
	 * completion.
	 */
	if (c->rank) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[0], 9, 0, &in));
		CHECK(wait_comp(c, c->rxcq).op_context == &in);
	} else {
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[1], 9));
	}
	barrier(c);
	if (c->rank) {
		i = 4711;
		CHECK(!lose || !system(lose));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[0], 8));
		close_all(c);
		hand_over(left, 1);
		return;
	}
	await_turn(left, 1, 1);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 8, 0, &in));
	CHECK(wait_comp(c, c->rxcq).op_context == &in);
	CHECK(in == 4711);
	close_all(c);
}

/*
 * One rank has closed its endpoint when the other sends it the last short messages: they are lost or refused, and the
 * other rank closes without an error.
 */
static void closed(struct ctx *c)
{
	static const struct setup plain;
	uint32_t *left = shared();
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	ssize_t n;
	int i;

	open_all(c, &plain);
	exchange(c);
	talk(c, !c->rank, 10);
	barrier(c);
	if (!c->rank) {
		close_all(c);
		hand_over(left, 1);
		return;
	}
	await_turn(left, 1, 1);
	for (i = 0; i < 3; i++) {
		n = fi_tinject(c->ep, &i, sizeof(i), c->peer[0], 8);
		CHECK(!n || n == -FI_EAGAIN || n == -FI_EIO);
		if (i == 1 && fi_cq_read(c->rxcq, &e, 1) == -FI_EAVAIL)
			fi_cq_readerr(c->rxcq, &err, 0);
	}
	close_all(c);
}

/*
 * A rank is killed before it has handled the last short message. Its sender's operation that waits for it fails,
 * although it sends nothing more: the dead rank had handled all earlier messages, so that this one was sent without a
 * completion.
 */
static void short_killed(struct ctx *c)
{
	struct pollfd end = { .events = POLLIN };
	uint32_t *turn = shared();
	int in, i = 5;

	if (c->rank < 2)
		talk(c, !c->rank, 10);
	barrier(c);
	if (c->rank == 2) {
		talk(c, 0, 10);
		turn[1] = (uint32_t) getpid();
		RETRY(c, fi_tsend(c->ep, &i, sizeof(i), NULL, c->peer[0], 6, NULL));
		await_turn(turn, DEATH, DEATH);
		raise(SIGKILL);
	}
	if (c->rank == 0) {
		talk(c, 2, 10);
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], 6, 0, &in));
		wait_comp(c, c->rxcq);
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], 8, 0, &in));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[2], 8));
		/* No question may be sent before the process has ended: its device would answer. */
		end.fd = (int) syscall(SYS_pidfd_open, (pid_t) turn[1], 0);
		CHECK(end.fd >= 0);
		hand_over(turn, DEATH);
		CHECK(poll(&end, 1, -1) == 1);
		close(end.fd);
		CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	}
	/* The live ranks continue. */
	talk(c, !c->rank, 10);
}

/*
 * A rank that sends more than its receiver has room for waits, and is not mistaken for a lying one: all receive buffers
 * hold its messages, the first of which waits for room and the others for that one.
 */
static void no_room(struct ctx *c)
{
	enum { COUNT = 200, LEN = 16000, POLLS = 20000 };
	uint8_t *buf = malloc(LEN);
	volatile uint32_t *sent = shared();
	struct fi_cq_tagged_entry e;
	int i, done = 0;

	talk(c, !c->rank, 10);
	barrier(c);
	if (!c->rank) {
		fill(buf, LEN, 1);
		for (i = 0; i < COUNT; i++) {
			RETRY(c, fi_tsenddata(c->ep, buf, LEN, NULL, (uint64_t) i, c->peer[1], 9, NULL));
			*sent = (uint32_t) i + 1;
			done += fi_cq_read(c->txcq, &e, 1) == 1;
		}
		for (; done < COUNT; done++)
			wait_comp(c, c->txcq);
	} else {
		/* There is room for some 40 messages, and 64 are in the buffers. */
		while (*sent < 120)
			progress(c);
		for (i = 0; i < POLLS; i++)
			progress(c);
		for (i = 0; i < COUNT; i++) {
			OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[0], 9, 0, NULL));
			e = wait_comp(c, c->rxcq);
			CHECK(e.data == (uint64_t) i && e.len == LEN && filled(buf, LEN, 1));
		}
	}
	free(buf);
}

const struct test test_hosts[] = { { "hosts_no_room", 2, no_room, .per_host = 1,
				     .env = { "FI_IVSHMEM_CORE=auto", "FI_IVSHMEM_UNEXPECTED=1048576" } },
				   { "hosts_in_order", 2, in_order, .per_host = 1, HOSTS },
				   { "hosts_last_word", 2, last_word, .bare = true, .per_host = 1, HOSTS },
				   { "hosts_closed", 2, closed, .bare = true, .per_host = 1, HOSTS },
				   { "hosts_short_killed", 3, short_killed, .per_host = 1, .killed = 1,
				     .env = { "FI_IVSHMEM_CORE=auto", "FI_IVSHMEM_TIMEOUT=1000" } },
				   { "hosts_reads", 2, reads, .bare = true, .per_host = 1,
				     .env = { "FI_IVSHMEM_CORE=auto", "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem",
					      "FI_LOG_SUBSYS=ep_ctrl" } },
				   { "hosts_anybody", 4, anybody, .per_host = 2, HOSTS },
				   { "hosts_many", 2, many, .per_host = 1, HOSTS },
				   { "hosts_killed", 2, killed, .per_host = 1, .killed = 1, HOSTS },
				   { "hosts_receiver_killed", 2, receiver_killed, .per_host = 1, .killed = 1,
				     .env = { "FI_IVSHMEM_CORE=auto", "FI_IVSHMEM_TIMEOUT=1000" } },
				   { "hosts_receiver_late", 2, receiver_late, .per_host = 1,
				     .env = { "FI_IVSHMEM_CORE=auto", "FI_IVSHMEM_TIMEOUT=1000" } },
				   { 0 } };
