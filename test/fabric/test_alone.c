/*
 * Ranks without a region. tcp of libfabric 2 matches their tagged messages (these tests also run on it:
 * test/mpi/alone_test.go); with 1.17 the provider does, over tcp;ofi_rxm.
 */
#include "lists.h"

#define ALONE .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" }

/* Below and above the sizes that the core provider and this provider inject. */
static const size_t sizes[] = { 0, 1, 100, 1000, 4096, 20000 };
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST 20000

/* Sends with one of the calls. Returns true if a completion follows. */
static bool send_by(struct ctx *c, int call, void *out, size_t len, fi_addr_t to, uint64_t tag)
{
	switch (call) {
	case 0: RETRY(c, fi_tsend(c->ep, out, len, NULL, to, tag, out)); return true;
	case 1: RETRY(c, fi_tsenddata(c->ep, out, len, NULL, 77 + tag, to, tag, out)); return true;
	case 2: RETRY(c, fi_tinject(c->ep, out, len, to, tag)); return false;
	default: RETRY(c, fi_tinjectdata(c->ep, out, len, 77 + tag, to, tag)); return false;
	}
}

/* Tests each call with each size, for the first message and for a known peer, and its completions. */
static void calls(struct ctx *c)
{
	static uint8_t out[LARGEST], in[LARGEST];
	struct fi_cq_tagged_entry e;
	uint64_t sent = 0, got = 0;
	fi_addr_t src;
	int call, round;
	size_t i;

	for (i = 0; i < SIZES; i++)
		for (call = 0; call < 4; call++) {
			if (call >= 2 && sizes[i] > 4096) {
				CHECK(fi_tinject(c->ep, out, sizes[i], c->peer[!c->rank], 1) == -FI_EMSGSIZE);
				continue;
			}
			for (round = 0; round < 3; round++) {
				uint64_t tag = 100 * i + 10 * (uint64_t) call + (uint64_t) round;

				memset(in, 0, sizeof(in));
				/* Directed, and from any source. */
				OK(fi_trecv(c->ep, in, sizeof(in), NULL, round % 2 ? FI_ADDR_UNSPEC : c->peer[!c->rank],
					    tag, 0, in));
				fill(out, sizes[i], (unsigned int) (tag + (uint64_t) c->rank));
				if (send_by(c, call, out, sizes[i], c->peer[!c->rank], tag)) {
					e = wait_comp(c, c->txcq);
					CHECK(e.op_context == out && e.flags == (FI_SEND | FI_TAGGED));
				} else {
					/* The buffer may be reused. */
					memset(out, 0xff, sizeof(out));
				}
				sent++;
				e = wait_comp_src(c, c->rxcq, &src);
				got++;
				CHECK(e.op_context == in && e.len == sizes[i] && e.tag == tag);
				CHECK(e.flags == (FI_RECV | FI_TAGGED | (call % 2 ? FI_REMOTE_CQ_DATA : 0)));
				CHECK(!(call % 2) || e.data == 77 + tag);
				CHECK(src == c->peer[!c->rank]);
				CHECK(filled(in, sizes[i], (unsigned int) (tag + (uint64_t) !c->rank)));
			}
		}
	OK(fi_cntr_wait(c->tx_cntr, sent, 10000));
	CHECK(fi_cntr_read(c->tx_cntr) == sent && fi_cntr_read(c->rx_cntr) == got);
	CHECK(fi_cq_read(c->txcq, &e, 1) == -FI_EAGAIN && fi_cq_read(c->rxcq, &e, 1) == -FI_EAGAIN);
	barrier(c);
}

/* Completions in all formats, some at a time, in the order of the messages. */
static void formats(struct ctx *c)
{
	static const size_t bytes[] = { 0, sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
					sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry) };
	enum { COUNT = 40 };
	static const struct setup plain;
	static int in[COUNT];
	struct fi_cq_tagged_entry e, out[5];
	fi_addr_t src[5];
	int format, i, k;
	ssize_t n;

	for (format = FI_CQ_FORMAT_CONTEXT; format <= FI_CQ_FORMAT_TAGGED; format++) {
		struct fi_cq_attr attr = { .format = (enum fi_cq_format) format };
		struct fid_cq *was;

		open_all(c, &plain);
		/* Another endpoint, whose queue has the format. */
		OK(fi_close(&c->ep->fid));
		was = c->rxcq;
		OK(fi_cq_open(c->domain, &attr, &c->rxcq, NULL));
		OK(fi_endpoint(c->domain, c->info, &c->ep, NULL));
		OK(fi_ep_bind(c->ep, &c->av->fid, 0));
		OK(fi_ep_bind(c->ep, &c->txcq->fid, FI_TRANSMIT));
		OK(fi_ep_bind(c->ep, &c->rxcq->fid, FI_RECV));
		OK(fi_enable(c->ep));
		exchange(c);
		for (i = 0; i < COUNT; i++)
			OK(fi_trecv(c->ep, &in[i], sizeof(in[i]), NULL, c->peer[!c->rank], 5, 0, &in[i]));
		barrier(c);
		for (i = 0; i < COUNT; i++)
			RETRY(c, fi_tinjectdata(c->ep, &i, sizeof(i), 9, c->peer[!c->rank], 5));
		for (i = 0; i < COUNT; i += (int) n) {
			/* No room for completions, but arrived messages are handled. */
			while ((n = fi_cq_read(c->rxcq, NULL, 0)) == -FI_EAGAIN)
				;
			CHECK(n == 0);
			memset(out, 0xee, sizeof(out));
			n = fi_cq_readfrom(c->rxcq, out, 3, src);
			CHECK(n >= 1 && n <= 3);
			for (k = 0; k < n; k++) {
				memset(&e, 0xee, sizeof(e));
				memcpy(&e, (char *) out + (size_t) k * bytes[format], bytes[format]);
				CHECK(e.op_context == &in[i + k] && in[i + k] == i + k);
				CHECK(src[k] == c->peer[!c->rank]);
				CHECK(format < FI_CQ_FORMAT_MSG || e.len == sizeof(int));
				CHECK(format < FI_CQ_FORMAT_DATA || e.data == 9);
				CHECK(format < FI_CQ_FORMAT_TAGGED || e.tag == 5);
			}
			/* Bytes after the entries are unchanged. */
			memset(&e, 0xee, sizeof(e));
			CHECK(!memcmp((char *) out + (size_t) n * bytes[format], &e, sizeof(e)));
		}
		barrier(c);
		OK(fi_close(&was->fid));
		close_all(c);
	}
}

/* The address of a removed entry is unknown, and its index may be reused for another address. */
static void removed(struct ctx *c)
{
	int other = 3 - c->rank, in, i;
	uint8_t name[64];
	size_t len = sizeof(name);
	uint8_t *names = shared();
	fi_addr_t addr;

	OK(fi_getname(&c->ep->fid, name, &len));
	memcpy(names + 64 * c->rank, name, 64);
	barrier(c);
	if (c->rank == 0) {
		for (i = 1; i < 3; i++) {
			RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[i], 1));
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[i], 2, 0, NULL));
			CHECK(wait_comp(c, c->rxcq).tag == 2 && in == i);
		}
		OK(fi_av_remove(c->av, &c->peer[1], 1, 0));
		CHECK(fi_tinject(c->ep, &in, sizeof(in), c->peer[1], 1) == -FI_EINVAL);
		CHECK(fi_tsend(c->ep, &in, sizeof(in), NULL, c->peer[1], 1, NULL) == -FI_EINVAL);
		CHECK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[1], 1, 0, NULL) == -FI_EINVAL);
		/* The other address gets the index. */
		CHECK(fi_av_insert(c->av, names + 64 * 2, 1, &addr, 0, NULL) == 1);
		for (i = 2; i < 6; i++)
			RETRY(c, fi_tinject(c->ep, &i, sizeof(i), addr, 3));
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[2], 4));
	} else {
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[0], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in == c->rank);
		RETRY(c, fi_tinject(c->ep, &c->rank, sizeof(c->rank), c->peer[0], 2));
		for (i = 2; c->rank == 2 && i < 6; i++) {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 3, 0, NULL));
			wait_comp(c, c->rxcq);
			CHECK(in == i);
		}
		if (other == 1) {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 4, 0, NULL));
			wait_comp(c, c->rxcq);
		}
	}
	barrier(c);
}

/* An injected buffer may be reused, although the peer has not received it yet. */
static void injected(struct ctx *c)
{
	enum { COUNT = 5000, BYTES = 4096 };
	static uint8_t buf[BYTES];
	int *full = shared();
	unsigned int i;
	ssize_t n;

	for (i = 0; c->rank == 0 && i < COUNT; i++) {
		fill(buf, BYTES, i);
		while ((n = fi_tinject(c->ep, buf, BYTES, c->peer[1], i)) == -FI_EAGAIN) {
			__atomic_store_n(full, 1, __ATOMIC_RELEASE);
			progress(c);
		}
		OK(n);
	}
	if (c->rank == 0)
		__atomic_store_n(full, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(full, __ATOMIC_ACQUIRE))
		usleep(100);
	for (i = 0; c->rank == 1 && i < COUNT; i++) {
		OK(fi_trecv(c->ep, buf, BYTES, NULL, c->peer[0], i, 0, NULL));
		CHECK(wait_comp(c, c->rxcq).len == BYTES && filled(buf, BYTES, i));
	}
	barrier(c);
}

/* Opens another endpoint, with the first one's queues. peer: the other process's second endpoint. */
static struct fid_ep *second_endpoint(struct ctx *c, fi_addr_t *peer)
{
	struct fid_ep *second;
	uint8_t *names = shared();
	size_t len = 64;

	OK(fi_endpoint(c->domain, c->info, &second, NULL));
	OK(fi_ep_bind(second, &c->av->fid, 0));
	OK(fi_ep_bind(second, &c->txcq->fid, FI_TRANSMIT));
	OK(fi_ep_bind(second, &c->rxcq->fid, FI_RECV));
	OK(fi_enable(second));
	OK(fi_getname(&second->fid, names + 64 * c->rank, &len));
	barrier(c);
	CHECK(fi_av_insert(c->av, names + 64 * !c->rank, 1, peer, 0, NULL) == 1);
	return second;
}

/* Two endpoints of a domain share a queue: each also polls for the other. */
static void two_endpoints(struct ctx *c)
{
	enum { COUNT = 200 };
	struct fid_ep *second, *first = c->ep;
	struct fi_cq_tagged_entry e;
	fi_addr_t peer;
	int in[2], i, k;

	second = second_endpoint(c, &peer);
	for (i = 0; i < COUNT; i++) {
		OK(fi_trecv(first, &in[0], sizeof(in[0]), NULL, FI_ADDR_UNSPEC, 1, 0, &in[0]));
		OK(fi_trecv(second, &in[1], sizeof(in[1]), NULL, FI_ADDR_UNSPEC, 1, 0, &in[1]));
		for (k = 0; k < 2; k++)
			RETRY(c, fi_tinject(k ? first : second, &i, sizeof(i), k ? peer : c->peer[!c->rank], 1));
		for (k = 0; k < 2; k++) {
			e = wait_comp(c, c->rxcq);
			CHECK(*(int *) e.op_context == i);
		}
	}
	barrier(c);
	OK(fi_close(&second->fid));
}

/* A message that arrived early for one endpoint does not match a receive of the other, though the tag is the same. */
static void early_for_second(struct ctx *c)
{
	const int to_second = 2, to_first = 1;
	struct fid_ep *second;
	fi_addr_t peer;
	int in = 0;

	second = second_endpoint(c, &peer);
	if (c->rank == 0) {
		RETRY(c, fi_tinject(c->ep, &to_second, sizeof(int), peer, 1));
		RETRY(c, fi_tinject(c->ep, &to_second, sizeof(int), peer, 9));
		RETRY(c, fi_tinject(c->ep, &to_first, sizeof(int), c->peer[1], 1));
	} else {
		/* The message with tag 1 arrived before this one. */
		OK(fi_trecv(second, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 9, 0, NULL));
		CHECK(wait_comp(c, c->rxcq).tag == 9);
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
		CHECK(wait_comp(c, c->rxcq).tag == 1 && in == to_first);
		OK(fi_trecv(second, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
		CHECK(wait_comp(c, c->rxcq).tag == 1 && in == to_second);
	}
	barrier(c);
	OK(fi_close(&second->fid));
}

/* Tagged and untagged messages alternate: each kind in its order, all completions in one queue. */
static void mixed(struct ctx *c)
{
	enum { COUNT = 300 };
	static int tagged[COUNT], untagged[COUNT];
	int i, t = 0, u = 0;

	for (i = 0; i < COUNT; i++) {
		OK(fi_trecv(c->ep, &tagged[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &tagged[i]));
		OK(fi_recv(c->ep, &untagged[i], sizeof(int), NULL, FI_ADDR_UNSPEC, &untagged[i]));
	}
	barrier(c);
	for (i = 0; i < COUNT; i++) {
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[!c->rank], 1));
		RETRY(c, fi_inject(c->ep, &i, sizeof(i), c->peer[!c->rank]));
	}
	while (t < COUNT || u < COUNT) {
		struct fi_cq_tagged_entry e = wait_comp(c, c->rxcq);

		CHECK(e.len == sizeof(int));
		if (e.flags & FI_TAGGED) {
			CHECK(e.op_context == &tagged[t] && tagged[t] == t);
			t++;
		} else {
			CHECK(e.op_context == &untagged[u] && untagged[u] == u);
			u++;
		}
	}
	barrier(c);
}

/*
 * While more messages arrive, completions in the queue are read before those passed directly. All messages fit the
 * queue and the sockets: the receiver handles nothing while it waits.
 */
static void queued_first(struct ctx *c)
{
	enum { COUNT = 500 };
	static int in[COUNT];
	struct fi_cq_tagged_entry e;
	int *sent = shared();
	int i, was;
	ssize_t n;

	for (i = 0; c->rank == 0 && i < COUNT; i++)
		OK(fi_trecv(c->ep, &in[i], sizeof(in[i]), NULL, c->peer[1], 5, 0, &in[i]));
	barrier(c);
	for (i = 0; c->rank == 1 && i < COUNT; i++) {
		RETRY(c, fi_tinject(c->ep, &i, sizeof(i), c->peer[0], 5));
		__atomic_store_n(sent, i, __ATOMIC_RELEASE);
	}
	for (i = 0; c->rank == 0 && i < COUNT; i++) {
		while ((n = fi_cq_read(c->rxcq, NULL, 0)) == -FI_EAGAIN)
			;
		CHECK(n == 0);
		was = __atomic_load_n(sent, __ATOMIC_ACQUIRE);
		while (was < COUNT - 1 && __atomic_load_n(sent, __ATOMIC_ACQUIRE) == was)
			;
		CHECK(fi_cq_read(c->rxcq, &e, 1) == 1);
		CHECK(e.op_context == &in[i] && in[i] == i);
	}
	barrier(c);
}

/* The parameters of the provider that libfabric lists: those of tests, and those of users. */
static void parameters(struct ctx *c, int tests)
{
	static const char *const names[] = { "FI_IVSHMEM_WINDOW", "FI_IVSHMEM_NT", "FI_IVSHMEM_INLINE_MAX",
					     "FI_IVSHMEM_CMA_MAX", "FI_IVSHMEM_CMA_COOP" };
	int count = 0, i, test = 0, user = 0;
	struct fi_param *params = NULL;

	(void) c;
	OK(fi_getparams(&params, &count));
	for (i = 0; i < count; i++) {
		user += !strcmp(params[i].name, "FI_IVSHMEM_CMA_MIN");
		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
			test += !strcmp(params[i].name, names[n]);
	}
	fi_freeparams(params);
	CHECK(user == 1);
	CHECK(test == tests);
}

static void parameters_user(struct ctx *c)
{
	parameters(c, 0);
}

static void parameters_test(struct ctx *c)
{
	parameters(c, 5);
}

const struct test test_alone[] = { { "parameters_user", 1, parameters_user, .env = { "FI_IVSHMEM_TEST=0" } },
				   { "parameters_test", 1, parameters_test },
				   { "alone_calls", 2, calls, .setup = { .counters = true }, ALONE },
				   { "alone_calls_safe", 2, calls,
				     .setup = { .counters = true, .threading = FI_THREAD_SAFE }, ALONE },
				   { "alone_formats", 2, formats, .bare = true, ALONE },
				   { "alone_removed", 3, removed, ALONE },
				   { "alone_injected", 2, injected, ALONE },
				   { "alone_two_endpoints", 2, two_endpoints, ALONE },
				   { "alone_early_for_second", 2, early_for_second, ALONE },
				   { "alone_mixed", 2, mixed, ALONE },
				   { "alone_queued_first", 2, queued_first, ALONE },
				   { 0 } };
