/*
 * A hostile peer sends everything that it may send, without end and without reading the answers: its memory use is
 * bounded, and others are served.
 */
#include <malloc.h>

#include "../../fabric/base/message.h"
#include "forge.h"
#include "lists.h"

struct told {
	uint32_t ready, over, polls, sent;
	uint16_t slot[3];
};

/* Sends one ordinary message, so that a ring exists, and returns the ring for forging. */
static struct forge take_over(struct ctx *c, struct told *s)
{
	RETRY(c, fi_tinject(c->ep, "hello", 5, c->peer[0], 1));
	return forge_ring(s->slot[1], s->slot[0], 2);
}

/* Returns the bytes of the heap, including those that malloc has mapped separately. */
static size_t heap(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Returns rank 0's heap use when the hostile rank has sent everything, or is ignored. */
static size_t serve(struct ctx *c, struct told *s)
{
	size_t before = heap(), most = 0, now;
	int same = 0;
	char in[8];

	OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 1, 0, NULL));
	wait_comp(c, c->rxcq);
	__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) == 1 && same < 2000) {
		struct fi_cq_tagged_entry e;
		union {
			struct fi_cq_err_entry e;
			char room[256];
		} err = { 0 };
		ssize_t n = 0;

		for (int i = 0; i < 1000 && !n; i++)
			n = fi_cq_read(c->rxcq, &e, 1) == -FI_EAVAIL;
		if (n)
			fi_cq_readerr(c->rxcq, &err.e, 0);
		now = heap();
		if (now > most) {
			most = now;
			same = 0;
		} else {
			same++;
		}
		sched_yield();
	}
	__atomic_store_n(&s->over, 1, __ATOMIC_RELEASE);
	return most > before ? most - before : 0;
}

static struct told *tell(struct ctx *c)
{
	struct told *s = shared();
	uint8_t name[64];
	size_t len = sizeof(name);

	OK(fi_getname(&c->ep->fid, name, &len));
	memcpy(&s->slot[c->rank], name + 2, sizeof(uint16_t));
	barrier(c);
	return s;
}

/* Sends a message of the third rank, which the attack does not affect. */
static void bystander(struct ctx *c)
{
	static char buf[300000];

	if (c->rank == 2) {
		fill(buf, sizeof(buf), 3);
		RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[0], 5, NULL));
		wait_comp(c, c->txcq);
		OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[0], 6, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(filled(buf, sizeof(buf), 4));
	} else {
		OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[2], 5, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(filled(buf, sizeof(buf), 3));
		fill(buf, sizeof(buf), 4);
		RETRY(c, fi_tsend(c->ep, buf, sizeof(buf), NULL, c->peer[2], 6, NULL));
		wait_comp(c, c->txcq);
	}
}

/* Rank 1 is hostile and sends count messages, each composed by make. */
static void flood(struct ctx *c, uint32_t count, size_t most,
		  size_t (*make)(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload))
{
	struct told *s = tell(c);

	if (c->rank == 1) {
		struct forge f = take_over(c, s);
		uint8_t payload[IVS_INLINE_MAX], op, flags;
		uint64_t tag;
		uint32_t i;

		while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
			usleep(100);
		for (i = 0; i < count; i++) {
			size_t len = make(i, &op, &flags, &tag, payload);

			if (!forge(&f, &s->over, op, flags, tag, payload, len))
				break;
		}
		/* Until everything was read, or ignored. */
		while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE) &&
		       __atomic_load_n(&f.ctl->tail, __ATOMIC_ACQUIRE) + f.mask / 2 < f.head)
			usleep(100);
		__atomic_store_n(&s->ready, 2, __ATOMIC_RELEASE);
		/* Its end would free all that it holds, which would not be counted then. */
		while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE))
			usleep(100);
		_exit(0);
	}
	if (!c->rank) {
		size_t took = serve(c, s);

		if (took > most)
			fail(__FILE__, __LINE__, "bytes of the heap that one peer takes", (long long) took);
	}
	bystander(c);
	_exit(0);
}

/* The start of a write without further pieces. */
static size_t part_of_write(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_rma rma = { .total = 1 << 20, .id = i };

	*op = IVS_OP_WRITE;
	*flags = 0;
	*tag = 0;
	memcpy(payload, &rma, sizeof(rma));
	return sizeof(rma);
}

/* A write of 0 bytes, whose acknowledgement is never read. */
static size_t write_of_nothing(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_rma rma = { .id = i };

	*op = IVS_OP_WRITE;
	*flags = IVS_F_ACK;
	*tag = 0;
	memcpy(payload, &rma, sizeof(rma));
	return sizeof(rma);
}

static size_t read_of_nothing(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_rma rma = { .id = i };

	*op = IVS_OP_READ;
	*flags = 0;
	*tag = 0;
	memcpy(payload, &rma, sizeof(rma));
	return sizeof(rma);
}

/* The start of a long message without bytes, for which no receive is posted. */
static size_t start_of_message(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_long head = { .total = 1 << 20, .id = i };

	*op = IVS_OP_TAGGED_LONG;
	*flags = IVS_F_CTS;
	*tag = 100;
	memcpy(payload, &head, sizeof(head));
	return sizeof(head);
}

/* A short piece of that message. */
static size_t piece_of_message(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_part part = { .id = i / 2 };
	size_t len = start_of_message(i / 2, op, flags, tag, payload);

	if (i % 2 == 0)
		return len;
	*op = IVS_OP_DATA;
	*flags = 0;
	*tag = 0;
	memset(payload, 1, sizeof(part) + 32);
	memcpy(payload, &part, sizeof(part));
	return sizeof(part) + 32;
}

enum { LARGE = 24, PIECES = (1 << 20) / NM_LAYOUT_BOUNCE_BYTES }; /* messages of 1 MiB, and pieces of each */

/* The starts of large messages without a receive, then all their bytes, which were not requested. */
static size_t all_of_message(uint32_t i, uint8_t *op, uint8_t *flags, uint64_t *tag, void *payload)
{
	struct ivs_bounce ref = { .len = NM_LAYOUT_BOUNCE_BYTES }; /* the same for each piece */
	struct ivs_part part = { .id = (i - LARGE) / PIECES };
	size_t len = start_of_message(i, op, flags, tag, payload);

	if (i < LARGE)
		return len;
	*op = IVS_OP_DATA;
	*flags = IVS_F_BOUNCE;
	*tag = (uint64_t) ((i - LARGE) % PIECES) * NM_LAYOUT_BOUNCE_BYTES;
	memcpy(payload, &ref, sizeof(ref));
	memcpy((char *) payload + sizeof(ref), &part, sizeof(part));
	return sizeof(ref) + sizeof(part);
}

static void flood_writes(struct ctx *c)
{
	flood(c, 100000, 8 << 20, part_of_write);
}

static void flood_acks(struct ctx *c)
{
	flood(c, 800000, 24 << 20, write_of_nothing);
}

static void flood_reads(struct ctx *c)
{
	flood(c, 100000, 8 << 20, read_of_nothing);
}

static void flood_starts(struct ctx *c)
{
	flood(c, 100000, 24 << 20, start_of_message);
}

static void flood_pieces(struct ctx *c)
{
	flood(c, 100000, 24 << 20, piece_of_message);
}

/* Half of FI_IVSHMEM_UNEXPECTED is for the first to send, and a 16th of the other half is the peer's own. */
static void flood_large(struct ctx *c)
{
	flood(c, LARGE + LARGE * PIECES, 10 << 20, all_of_message);
}

/* A slot that has another owner each time it is read, and each owner sends invalid messages. */
static void flood_owners(struct ctx *c)
{
	struct told *s = tell(c);

	if (c->rank == 1) {
		struct forge f = take_over(c, s);
		uint32_t epoch = f.conn->epoch;

		while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
			usleep(100);
		/* For the first owner, and to find where a new owner's ring begins. */
		forge(&f, &s->over, 200, 0, 0, "", 0);
		f.head = 0;
		f.ctl->tail = 0;
		forge(&f, &s->over, 200, 0, 0, "", 0);
		for (uint32_t i = 0; i < 200000 && !__atomic_load_n(&s->over, __ATOMIC_ACQUIRE); i++) {
			epoch++;
			__atomic_store_n(&f.sender->owner, NM_SLOT_OWNER(epoch, NM_SLOT_LIVE), __ATOMIC_RELEASE);
			__atomic_store_n(&f.conn->epoch, epoch, __ATOMIC_RELEASE);
			__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
			for (int wait = 0; wait < 1000; wait++)
				__atomic_thread_fence(__ATOMIC_SEQ_CST);
		}
		__atomic_store_n(&s->ready, 2, __ATOMIC_RELEASE);
		_exit(0);
	}
	if (!c->rank) {
		size_t took = serve(c, s);

		if (took > 2 << 20)
			fail(__FILE__, __LINE__, "bytes of the heap that one slot takes", (long long) took);
	}
	bystander(c);
	_exit(0);
}

/*
 * A ring that never becomes empty, even after its rank has left: each poll of rank 0 ends after some messages, and its
 * operations that wait for that rank end with an error.
 */
static void flood_rest(struct ctx *c)
{
	struct told *s = tell(c);

	if (c->rank == 1) {
		struct forge f = take_over(c, s);
		uint8_t payload[IVS_INLINE_MAX], op, flags;
		uint64_t tag, at = 0, tail;
		uint32_t polls = 0, now;
		size_t len;

		while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
			usleep(100);
		for (uint32_t i = 0;; i++) {
			len = write_of_nothing(i, &op, &flags, &tag, payload);
			if (!forge(&f, &s->over, op, 0, tag, payload, len))
				break;
			tail = __atomic_load_n(&f.ctl->tail, __ATOMIC_ACQUIRE);
			now = __atomic_load_n(&s->polls, __ATOMIC_ACQUIRE);
			if (now != polls) {
				polls = now;
				at = tail;
			}
			/* Lines read in one call: the rest of the ring, and one poll of it. */
			CHECK(tail - at <= 4 * (f.mask + 1));
			if (i == 100000)
				__atomic_store_n(&f.sender->owner, NM_SLOT_OWNER(f.conn->epoch, NM_SLOT_FREE),
						 __ATOMIC_RELEASE);
		}
		_exit(0);
	}
	if (!c->rank) {
		struct fi_cq_tagged_entry e;
		char in[8];
		ssize_t n;

		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 9, 0, NULL));
		__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
		while ((n = fi_cq_read(c->rxcq, &e, 1)) == -FI_EAGAIN)
			__atomic_add_fetch(&s->polls, 1, __ATOMIC_RELEASE);
		CHECK(n == -FI_EAVAIL && wait_err(c, c->rxcq).err == FI_EIO);
		__atomic_store_n(&s->over, 1, __ATOMIC_RELEASE);
	}
	bystander(c);
	_exit(0);
}

/*
 * Rank 1 sends messages without receives to rank 0 until no more are accepted. Messages of rank 2 are still received,
 * regardless of the order of the receives; and nothing is lost.
 */
static void share_of_unexpected(struct ctx *c)
{
	struct told *s = tell(c);
	static char buf[4096];

	if (c->rank == 1) {
		uint32_t polls = 0, now;
		ssize_t ret;

		for (;;) {
			fill(buf, sizeof(buf), s->sent);
			ret = fi_tinject(c->ep, buf, sizeof(buf), c->peer[0], 100);
			now = __atomic_load_n(&s->polls, __ATOMIC_ACQUIRE);
			if (!ret) {
				s->sent++;
				polls = now;
				continue;
			}
			CHECK(ret == -FI_EAGAIN);
			progress(c);
			/* It has polled this often without accepting a message. */
			if (now - polls > 2000)
				break;
		}
		__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
	} else if (c->rank == 2) {
		while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
			progress(c);
		for (uint64_t tag = 7; tag <= 8; tag++)
			RETRY(c, fi_tinject(c->ep, &tag, sizeof(tag), c->peer[0], tag));
	} else {
		uint64_t in;

		while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE)) {
			progress(c);
			__atomic_add_fetch(&s->polls, 1, __ATOMIC_RELEASE);
		}
		for (uint64_t tag = 8; tag >= 7; tag--) {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[2], tag, 0, NULL));
			wait_comp(c, c->rxcq);
			CHECK(in == tag);
		}
		for (uint32_t i = 0; i < s->sent; i++) {
			OK(fi_trecv(c->ep, buf, sizeof(buf), NULL, c->peer[1], 100, 0, NULL));
			CHECK(wait_comp(c, c->rxcq).len == sizeof(buf));
			CHECK(filled(buf, sizeof(buf), i));
		}
	}
}

#define SMALL "FI_IVSHMEM_UNEXPECTED=16777216"

const struct test test_flood[] = { { "flood_writes", 3, flood_writes, .killed = 1 },
				   { "flood_acks", 3, flood_acks, .killed = 1 },
				   { "flood_reads", 3, flood_reads, .killed = 1 },
				   { "flood_starts", 3, flood_starts, .killed = 1, .env = { SMALL } },
				   { "flood_pieces", 3, flood_pieces, .killed = 1, .env = { SMALL } },
				   { "flood_large", 3, flood_large, .killed = 1, .env = { SMALL } },
				   { "flood_owners", 3, flood_owners, .killed = 1 },
				   { "flood_rest", 3, flood_rest, .killed = 1 },
				   { "flood_share", 3, share_of_unexpected, .env = { SMALL } },
				   { 0 } };
