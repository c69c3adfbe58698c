/* Sends and receives: each call, each size, each path of a message. */
#include "lists.h"

#define HOSTS .env = { "FI_IVSHMEM_CORE=auto" }

/* In the ring, in a bounce buffer, in pieces, read from memory; and the boundaries between these. */
static const size_t sizes[] = {
	0,    1,    7,	  8,	 40,	48,    49,    104,    105,     328,	329,	 4096,
	8191, 8192, 8193, 12287, 12288, 65536, 65537, 200000, 1048576, 2097153, 5000001,
};
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST 5000001

static int next(const struct ctx *c)
{
	return (c->rank + 1) % c->procs;
}

static int previous(const struct ctx *c)
{
	return (c->rank + c->procs - 1) % c->procs;
}

/* Each rank sends to the next and receives from the one before. */
static void tagged_ring(struct ctx *c)
{
	uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST);
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	size_t i;
	int round;

	for (i = 0; i < SIZES; i++)
		for (round = 0; round < 3; round++) {
			uint64_t tag = 1000 + i;
			unsigned int seed = (unsigned int) (i + (size_t) round);

			fill(out, sizes[i], seed + (unsigned int) c->rank);
			memset(in, 0xee, sizes[i]);
			/* Posted before the message, or after it has arrived. */
			if (round != 1)
				OK(fi_trecv(c->ep, in, sizes[i], NULL, c->peer[previous(c)], tag, 0, in));
			barrier(c);
			RETRY(c, fi_tsend(c->ep, out, sizes[i], NULL, c->peer[next(c)], tag, out));
			if (round == 1) {
				barrier(c);
				OK(fi_trecv(c->ep, in, sizes[i], NULL, FI_ADDR_UNSPEC, tag, 0, in));
			}
			e = wait_comp(c, c->txcq);
			CHECK(e.op_context == out && e.flags == (FI_SEND | FI_TAGGED));
			e = wait_comp_src(c, c->rxcq, &src);
			CHECK(e.op_context == in && e.flags == (FI_RECV | FI_TAGGED));
			CHECK(e.len == sizes[i] && e.tag == tag && src == c->peer[previous(c)]);
			CHECK(filled(in, sizes[i], seed + (unsigned int) previous(c)));
		}
	free(out);
	free(in);
}

/* Each call that sends, to a receive of each kind. */
static void tagged_calls(struct ctx *c)
{
	char out[600], in[600];
	struct iovec iov[3] = { { out, 10 }, { out + 10, 300 }, { out + 310, 290 } };
	struct iovec into[2] = { { in, 77 }, { in + 77, 523 } };
	struct fi_msg_tagged msg = {
		.msg_iov = iov, .iov_count = 3, .addr = c->peer[1], .tag = 5, .context = out, .data = 99
	};
	struct fi_msg_tagged rmsg = { .msg_iov = into, .iov_count = 2, .addr = c->peer[0], .tag = 5, .context = in };
	struct fi_cq_tagged_entry e;
	int k;

	fill(out, sizeof(out), 3);
	if (c->rank == 0) {
		RETRY(c, fi_tinject(c->ep, out, 600, c->peer[1], 1));
		RETRY(c, fi_tinjectdata(c->ep, out, 600, 0x1122334455667788, c->peer[1], 2));
		RETRY(c, fi_tsenddata(c->ep, out, 600, NULL, 42, c->peer[1], 3, out));
		RETRY(c, fi_tsendv(c->ep, iov, NULL, 3, c->peer[1], 4, out));
		RETRY(c, fi_tsendmsg(c->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION));
		msg.tag = 6;
		RETRY(c, fi_tsendmsg(c->ep, &msg, FI_INJECT | FI_COMPLETION));
		memset(out, 0, sizeof(out));
		msg.tag = 7;
		fill(out, sizeof(out), 3);
		RETRY(c, fi_tsendmsg(c->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		for (k = 0; k < 5; k++)
			CHECK(wait_comp(c, c->txcq).op_context == out);
		CHECK(fi_tinject(c->ep, out, c->info->tx_attr->inject_size + 1, c->peer[1], 1) == -FI_EMSGSIZE);
		return;
	}
	for (k = 1; k <= 7; k++) {
		memset(in, 0, sizeof(in));
		if (k == 1) {
			OK(fi_trecv(c->ep, in, 600, NULL, FI_ADDR_UNSPEC, 1, 0, in));
		} else if (k == 2) {
			OK(fi_trecvv(c->ep, into, NULL, 2, FI_ADDR_UNSPEC, 2, 0, in));
		} else {
			rmsg.tag = (uint64_t) k;
			rmsg.ignore = 0;
			OK(fi_trecvmsg(c->ep, &rmsg, FI_COMPLETION));
		}
		e = wait_comp(c, c->rxcq);
		CHECK(e.len == 600 && e.tag == (uint64_t) k && filled(in, 600, 3));
		CHECK(!!(e.flags & FI_REMOTE_CQ_DATA) == (k == 2 || k == 3 || k == 5));
		if (k == 2)
			CHECK(e.data == 0x1122334455667788);
		if (k == 3)
			CHECK(e.data == 42);
		if (k == 5)
			CHECK(e.data == 99);
	}
}

static void msg_calls(struct ctx *c)
{
	char out[600], in[600];
	struct iovec iov[2] = { { out, 100 }, { out + 100, 500 } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 2, .addr = c->peer[1], .context = out, .data = 7 };
	struct fi_cq_tagged_entry e;
	int k;

	fill(out, sizeof(out), 5);
	if (c->rank == 0) {
		RETRY(c, fi_send(c->ep, out, 600, NULL, c->peer[1], out));
		RETRY(c, fi_sendv(c->ep, iov, NULL, 2, c->peer[1], out));
		RETRY(c, fi_sendmsg(c->ep, &msg, FI_COMPLETION));
		RETRY(c, fi_senddata(c->ep, out, 600, NULL, 7, c->peer[1], out));
		RETRY(c, fi_inject(c->ep, out, 600, c->peer[1]));
		RETRY(c, fi_injectdata(c->ep, out, 600, 7, c->peer[1]));
		for (k = 0; k < 4; k++)
			CHECK(wait_comp(c, c->txcq).flags == (FI_SEND | FI_MSG));
		return;
	}
	for (k = 0; k < 6; k++) {
		struct iovec into[2] = { { in, 1 }, { in + 1, 599 } };
		struct fi_msg rmsg = { .msg_iov = into, .iov_count = 2, .context = in, .addr = c->peer[0] };

		memset(in, 0, sizeof(in));
		if (k % 3 == 0)
			OK(fi_recv(c->ep, in, 600, NULL, FI_ADDR_UNSPEC, in));
		else if (k % 3 == 1)
			OK(fi_recvv(c->ep, into, NULL, 2, c->peer[0], in));
		else
			OK(fi_recvmsg(c->ep, &rmsg, FI_COMPLETION));
		e = wait_comp(c, c->rxcq);
		CHECK(e.len == 600 && filled(in, 600, 5));
		CHECK((e.flags & (FI_RECV | FI_MSG)) == (FI_RECV | FI_MSG));
		CHECK(!(e.flags & FI_REMOTE_CQ_DATA) || e.data == 7);
	}
}

/* Of messages that match the same receive the first sent is the first received. */
static void order(struct ctx *c)
{
	enum { COUNT = 3000 };
	static uint8_t buf[40000];
	uint32_t in, i;

	if (c->rank == 0) {
		for (i = 0; i < COUNT; i++) {
			/* Small messages must not overtake large ones. */
			size_t len = i % 97 == 0 ? 30000 : i % 31 == 0 ? 5000 : sizeof(i);

			memcpy(buf, &i, sizeof(i));
			RETRY(c, fi_tsend(c->ep, buf, len, NULL, c->peer[1], 7, NULL));
			wait_comp(c, c->txcq);
		}
		return;
	}
	for (i = 0; i < COUNT; i++) {
		OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, i % 2 ? 7 : 0, i % 2 ? 0 : UINT64_MAX,
			    NULL));
		wait_comp(c, c->rxcq);
		memcpy(&in, buf, sizeof(in));
		CHECK(in == i);
	}
}

/* Tags, masks and sources select messages; others wait. */
static void matching(struct ctx *c)
{
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	int in, i;

	if (c->rank) {
		for (i = 0; i < 10; i++)
			RETRY(c, fi_tinject(c->ep, &c->rank, sizeof(c->rank), c->peer[0],
					    (uint64_t) (0x100 * c->rank + i)));
		barrier(c);
		return;
	}
	barrier(c);
	/* The last message of rank 2 by tag, then the first of rank 1 by source. */
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0x209, 0, NULL));
	e = wait_comp(c, c->rxcq);
	CHECK(in == 2 && e.tag == 0x209);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 0, UINT64_MAX, NULL));
	e = wait_comp_src(c, c->rxcq, &src);
	CHECK(in == 1 && e.tag == 0x100 && src == c->peer[1]);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], 0x005, 0xff00, NULL));
	e = wait_comp_src(c, c->rxcq, &src);
	CHECK(in == 2 && e.tag == 0x205 && src == c->peer[2]);
	/* No message of rank 1 has this tag: a later one of rank 2 must not match. */
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 0x201, 0, &in));
	OK(fi_cancel(&c->ep->fid, &in));
	CHECK(wait_err(c, c->rxcq).err == FI_ECANCELED);
	for (i = 0; i < 17; i++) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, NULL));
		wait_comp(c, c->rxcq);
	}
}

static void truncate_some(struct ctx *c)
{
	static const size_t lens[] = { 40, 300, 5000, 100000, 3000000 };
	/* Without a region the core provider reports the truncated bytes; tcp does not. */
	bool alone = !strcmp(getenv("FI_IVSHMEM_REGION"), "none");
	uint8_t *buf = calloc(1, 3000000); /* valgrind does not see what the sender writes there */
	struct fi_cq_err_entry err;
	size_t i;

	for (i = 0; i < 5; i++) {
		if (c->rank == 0) {
			fill(buf, lens[i], 1);
			RETRY(c, fi_tsend(c->ep, buf, lens[i], NULL, c->peer[1], i, NULL));
			wait_comp(c, c->txcq);
		} else {
			if (i % 2)
				usleep(1000);
			OK(fi_trecv(c->ep, buf, lens[i] / 2, NULL, FI_ADDR_UNSPEC, i, 0, buf));
			err = wait_err(c, c->rxcq);
			CHECK(err.err == FI_ETRUNC && err.op_context == buf);
			CHECK(alone || (err.len == lens[i] / 2 && err.olen == lens[i] - lens[i] / 2));
			CHECK(alone || filled(buf, lens[i] / 2, 1));
		}
		barrier(c);
	}
	free(buf);
}

static void peek_claim(struct ctx *c)
{
	struct fi_context ctx;
	char in[20000], out[20000];
	struct iovec iov = { in, sizeof(in) };
	struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = 3, .context = &ctx };
	struct fi_cq_tagged_entry e;
	size_t len;

	for (len = 8; len <= sizeof(out); len = len * 50 + 1) {
		if (c->rank == 0) {
			fill(out, len, 9);
			barrier(c);
			RETRY(c, fi_tsend(c->ep, out, len, NULL, c->peer[1], 3, NULL));
			RETRY(c, fi_tsend(c->ep, out, len, NULL, c->peer[1], 3, NULL));
			RETRY(c, fi_tsend(c->ep, out, len, NULL, c->peer[1], 4, NULL));
			wait_comp(c, c->txcq);
			wait_comp(c, c->txcq);
			wait_comp(c, c->txcq);
			barrier(c);
			continue;
		}
		msg.msg_iov = NULL;
		msg.iov_count = 0;
		msg.tag = 3;
		OK(fi_trecvmsg(c->ep, &msg, FI_PEEK));
		CHECK(wait_err(c, c->rxcq).err == FI_ENOMSG);
		barrier(c);
		/* Until the message has arrived. */
		for (;;) {
			struct fi_cq_err_entry err;
			ssize_t n;

			OK(fi_trecvmsg(c->ep, &msg, FI_PEEK | FI_CLAIM));
			n = fi_cq_read(c->rxcq, &e, 1);
			if (n == 1)
				break;
			CHECK(n == -FI_EAVAIL && fi_cq_readerr(c->rxcq, &err, 0) == 1);
			CHECK(err.err == FI_ENOMSG);
			usleep(100);
		}
		CHECK(e.len == len && e.tag == 3 && e.op_context == &ctx);
		/* The second of them is another message: the first is claimed. */
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 3, 0, in));
		CHECK(wait_comp(c, c->rxcq).op_context == in && filled(in, len, 9));
		memset(in, 0, sizeof(in));
		msg.msg_iov = &iov;
		msg.iov_count = 1;
		OK(fi_trecvmsg(c->ep, &msg, FI_CLAIM));
		e = wait_comp(c, c->rxcq);
		CHECK(e.op_context == &ctx && e.len == len && filled(in, len, 9));
		/* Found, and discarded. */
		msg.tag = 4;
		for (;;) {
			struct fi_cq_err_entry err;

			OK(fi_trecvmsg(c->ep, &msg, FI_PEEK | FI_CLAIM));
			if (fi_cq_read(c->rxcq, &e, 1) == 1)
				break;
			fi_cq_readerr(c->rxcq, &err, 0);
		}
		OK(fi_trecvmsg(c->ep, &msg, FI_CLAIM | FI_DISCARD));
		wait_comp(c, c->rxcq);
		barrier(c);
	}
}

static void multi_recv(struct ctx *c)
{
	enum { COUNT = 2000, BYTES = 20000 };
	static char buf[2][BYTES];
	struct fi_cq_tagged_entry e;
	size_t min = 5000;
	uint32_t i, got = 0;
	int released = 0, k;

	if (c->rank == 0) {
		char out[5000];

		for (i = 0; i < COUNT; i++) {
			fill(out, 8 + i % 4900, i);
			RETRY(c, fi_send(c->ep, out, 8 + i % 4900, NULL, c->peer[1], NULL));
			wait_comp(c, c->txcq);
		}
		return;
	}
	OK(fi_setopt(&c->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)));
	for (k = 0; k < 2; k++) {
		struct iovec iov = { buf[k], BYTES };
		struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf[k] };

		OK(fi_recvmsg(c->ep, &msg, FI_MULTI_RECV | FI_COMPLETION));
	}
	while (got < COUNT) {
		e = wait_comp(c, c->rxcq);
		if (e.flags & FI_RECV && e.buf) {
			CHECK((char *) e.buf >= (char *) e.op_context &&
			      (char *) e.buf + e.len <= (char *) e.op_context + BYTES);
			CHECK(e.len == 8 + got % 4900 && filled(e.buf, e.len, got));
			got++;
		}
		if (e.flags & FI_MULTI_RECV) {
			struct iovec iov = { e.op_context, BYTES };
			struct fi_msg msg = {
				.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = e.op_context
			};

			released++;
			OK(fi_recvmsg(c->ep, &msg, FI_MULTI_RECV | FI_COMPLETION));
		}
	}
	CHECK(released > COUNT / 20);
	fi_cancel(&c->ep->fid, buf[0]);
	fi_cancel(&c->ep->fid, buf[1]);
}

/* More messages than the rings and bounce buffers hold, before the first receive is posted. */
static void flood(struct ctx *c)
{
	enum { COUNT = 5000 };
	static uint8_t out[COUNT][3];
	char in[20000], big[20000];
	uint32_t i;

	if (c->rank) {
		fill(big, sizeof(big), 2);
		for (i = 0; i < COUNT; i++) {
			RETRY(c, fi_tsend(c->ep, big, i % 50 ? 16 : sizeof(big), NULL, c->peer[0], (uint64_t) c->rank,
					  out[i]));
			wait_comp(c, c->txcq);
		}
		return;
	}
	usleep(20000);
	for (i = 0; i < COUNT * (uint32_t) (c->procs - 1); i++) {
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, NULL));
		CHECK(filled(in, wait_comp(c, c->rxcq).len, 2));
	}
}

/* A long message is sent up to the window before its receive is posted, also with a window above the maximum. */
static void window(struct ctx *c)
{
	static char buf[3 << 20];

	if (c->rank) {
		fill(buf, sizeof(buf), 3);
		RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[0], 1, NULL));
		wait_comp(c, c->txcq);
		return;
	}
	/* Everything that the sender may send has arrived long before the receive. */
	for (int ms = 0; ms < 200; ms++) {
		progress(c);
		usleep(1000);
	}
	OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[1], 1, 0, NULL));
	CHECK(filled(buf, wait_comp(c, c->rxcq).len, 3));
}

static void self(struct ctx *c)
{
	uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST);
	size_t i;

	for (i = 0; i < SIZES; i++) {
		fill(out, sizes[i], 8);
		memset(in, 0, sizes[i]);
		OK(fi_trecv(c->ep, in, sizes[i], NULL, c->peer[c->rank], i, 0, NULL));
		RETRY(c, fi_tsend(c->ep, out, sizes[i], NULL, c->peer[c->rank], i, NULL));
		wait_comp(c, c->txcq);
		CHECK(wait_comp(c, c->rxcq).len == sizes[i] && filled(in, sizes[i], 8));
	}
	free(out);
	free(in);
}

static void selective(struct ctx *c)
{
	struct iovec iov = { &c->rank, sizeof(c->rank) };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = c->peer[1], .tag = 1, .context = &iov };
	struct fi_cq_tagged_entry e;
	int in;

	if (c->rank == 0) {
		RETRY(c, fi_tsend(c->ep, &c->rank, sizeof(c->rank), NULL, c->peer[1], 1, NULL));
		RETRY(c, fi_tsendmsg(c->ep, &msg, FI_COMPLETION));
		RETRY(c, fi_tsendmsg(c->ep, &msg, 0));
		CHECK(wait_comp(c, c->txcq).op_context == &iov);
		CHECK(fi_cq_read(c->txcq, &e, 1) == -FI_EAGAIN);
		barrier(c);
		return;
	}
	/* Only the last receive reports a completion. */
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	iov.iov_base = &in;
	msg.addr = FI_ADDR_UNSPEC;
	OK(fi_trecvmsg(c->ep, &msg, FI_COMPLETION));
	CHECK(wait_comp(c, c->rxcq).op_context == &iov);
	CHECK(fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
	barrier(c);
}

/*
 * Like hosts of two ranks each: within a pair through the region and by reading memory, between pairs over the network;
 * one matching for all three.
 */
static void two_hosts(struct ctx *c)
{
	static const struct setup plain;
	static char region[128];
	struct fi_cq_tagged_entry e;
	fi_addr_t src;
	int in, i, k;

	snprintf(region, sizeof(region), "%s-%d", getenv("FI_IVSHMEM_REGION"), c->rank / 2);
	setenv("FI_IVSHMEM_REGION", region, 1);
	open_all(c, &plain);
	exchange(c);
	tagged_ring(c);
	barrier(c);
	/* From any source, over any channel. */
	for (i = 0; i < 50; i++)
		for (k = 0; k < c->procs; k++)
			RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[k], (uint64_t) c->rank));
	for (i = 0; i < 50 * c->procs; i++) {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, NULL));
		e = wait_comp_src(c, c->rxcq, &src);
		CHECK(e.tag < (uint64_t) c->procs && src == c->peer[e.tag] && in < 50);
	}
	barrier(c);
	close_all(c);
}

/* No region exists. */
static void network_only(struct ctx *c)
{
	tagged_ring(c);
	tagged_calls(c);
	barrier(c);
	msg_calls(c);
	barrier(c);
	order(c);
	barrier(c);
	truncate_some(c);
}

/*
 * Streams of messages, of which one read of the queue returns several: each reaches its receive, also if one that does
 * not fit the ring, a message without a tag or a receive in two pieces is between them.
 */
static void rows(struct ctx *c)
{
	enum { ROW = 200, ROUNDS = 20 };
	static uint8_t out[600], in[ROW][604];
	struct fi_cq_tagged_entry e[16];
	fi_addr_t src[16];
	int round, i, k;

	for (round = 0; round < ROUNDS; round++) {
		barrier(c);
		if (c->rank == 0) {
			for (i = 0; i < ROW; i++) {
				size_t len = (size_t) (i % 97 ? (i * 7 + round) % 329 : 600);

				fill(out, len, (unsigned int) (round + i));
				if (i % 50 == 49)
					RETRY(c, fi_inject(c->ep, out, len, c->peer[1]));
				else if (i % 3)
					RETRY(c, fi_tinject(c->ep, out, len, c->peer[1], (uint64_t) i));
				else
					RETRY(c, fi_tinjectdata(c->ep, out, len, (uint64_t) i << 40, c->peer[1],
								(uint64_t) i));
			}
			continue;
		}
		for (i = 0; i < ROW; i++) {
			struct iovec two[2] = { { in[i], 5 }, { in[i] + 9, 595 } };

			if (i % 50 == 49)
				OK(fi_recv(c->ep, in[i], 600, NULL, c->peer[0], in[i]));
			else if (i % 41)
				OK(fi_trecv(c->ep, in[i], 600, NULL, c->peer[0], (uint64_t) i, 0, in[i]));
			else
				OK(fi_trecvv(c->ep, two, NULL, 2, FI_ADDR_UNSPEC, (uint64_t) i, 0, in[i]));
		}
		for (i = 0; i < ROW;) {
			ssize_t n = fi_cq_readfrom(c->rxcq, e, 1 + (size_t) (i + round) % 16, src);

			CHECK(n == -FI_EAGAIN || (n > 0 && n <= 1 + (i + round) % 16));
			for (k = 0; k < n; k++, i++) {
				size_t len = (size_t) (i % 97 ? (i * 7 + round) % 329 : 600);
				uint64_t kind = i % 50 == 49 ? FI_MSG : FI_TAGGED;
				bool data = kind == FI_TAGGED && !(i % 3);

				CHECK(e[k].op_context == in[i] && e[k].len == len && src[k] == c->peer[0]);
				CHECK(e[k].flags == (FI_RECV | kind | (data ? FI_REMOTE_CQ_DATA : 0)));
				CHECK(kind == FI_MSG || e[k].tag == (uint64_t) i);
				CHECK(!data || e[k].data == (uint64_t) i << 40);
				if (kind == FI_TAGGED && !(i % 41))
					memmove(in[i] + 5, in[i] + 9, 595);
				CHECK(filled(in[i], len, (unsigned int) (round + i)));
			}
		}
	}
	barrier(c);
}

const struct test test_messages[] = {
	{ "tagged_ring", 2, tagged_ring },
	{ "tagged_ring_3", 3, tagged_ring },
	{ "tagged_ring_map", 2, tagged_ring, .setup = { .av_type = FI_AV_MAP } },
	{ "tagged_ring_no_cma", 2, tagged_ring, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "tagged_ring_inline", 2, tagged_ring, .env = { "FI_IVSHMEM_INLINE_MAX=20" } },
	{ "tagged_ring_safe", 2, tagged_ring, .setup = { .threading = FI_THREAD_SAFE } },
	{ "tagged_ring_delivery", 2, tagged_ring, .setup = { .tx_op_flags = FI_DELIVERY_COMPLETE } },
	{ "tagged_calls", 2, tagged_calls },
	{ "msg_calls", 2, msg_calls },
	{ "rows", 2, rows },
	{ "order", 2, order },
	{ "order_no_cma", 2, order, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "matching", 3, matching },
	{ "truncate", 2, truncate_some },
	{ "truncate_no_cma", 2, truncate_some, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "peek_claim", 2, peek_claim },
	{ "peek_claim_no_cma", 2, peek_claim, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "multi_recv", 2, multi_recv },
	{ "window", 2, window, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "window_large", 2, window, .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_WINDOW=2097152" } },
	{ "flood", 4, flood },
	{ "flood_small_cq", 4, flood, .setup = { .cq_size = 16 } },
	{ "self", 1, self },
	{ "self_no_cma", 1, self, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "hosts_ring", 2, tagged_ring, .per_host = 1, HOSTS },
	{ "hosts_truncate", 2, truncate_some, .per_host = 1, HOSTS },
	{ "hosts_multi_recv", 2, multi_recv, .per_host = 1, HOSTS },
	{ "two_hosts", 4, two_hosts, .bare = true, .env = { "FI_IVSHMEM_CORE=auto" } },
	/* By the variable's old name, which applies if the new one is not set. */
	{ "two_hosts_old_name", 4, two_hosts, .bare = true, .env = { "FI_IVSHMEM_CORE", "FI_IVSHMEM_INNER=auto" } },
	{ "network_only", 2, network_only, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_matching", 3, matching, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_peek_claim", 2, peek_claim, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_multi_recv", 2, multi_recv, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_flood", 4, flood, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_safe", 2, tagged_ring, .setup = { .threading = FI_THREAD_SAFE },
	  .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_delivery", 2, tagged_ring, .setup = { .tx_op_flags = FI_DELIVERY_COMPLETE },
	  .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "selective", 2, selective, .setup = { .selective = true } },
	{ "alone_selective", 2, selective, .setup = { .selective = true },
	  .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "alone_flood_small_cq", 4, flood, .setup = { .cq_size = 16 },
	  .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ 0 }
};
