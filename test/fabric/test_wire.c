/*
 * A hostile rank on another host uses the core provider directly, and forges announcements of messages that are read
 * through it (fabric/remote/fetch.c). Only the receive that such a message matches gets bytes, and at most its length.
 * Other memory, other messages and other ranks are not affected.
 */
#include "lists.h"
#include "raw.h"

enum { LEN = RAW_LEN, OWN = IVS_CORE_READ_MIN, ROOM = 3 * LEN, GUARD = 4096, VICTIM = 0, HONEST = 1, HOSTILE = 2 };

/* Memory that the processes share. */
struct told {
	uint32_t step;
	uint8_t addr[64]; /* the victim's */
};

/* The id of the victim's message to the honest rank: the next one of ivs_tx_get() each time. */
static uint32_t anothers_id;

/* Returns a correct announcement of its memory. */
static struct ivs_core_rts truth(const struct raw *r)
{
	bool virt = r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	return (struct ivs_core_rts) {
		.total = LEN, .id = 1, .key = fi_mr_key(r->mr), .addr = virt ? (uintptr_t) r->memory : 0
	};
}

static void rts(struct raw *r, uint64_t tag, const struct ivs_core_rts *head)
{
	raw_send(r, IVS_OP_TAGGED_RTS, IVS_F_CORE, tag, head, sizeof(*head), NULL, 0);
}

/* Sends a correct announcement. The functions after it send one attack each. */
static void honest(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	rts(r, 1, &head);
}

static void twice(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	rts(r, 1, &head);
	rts(r, 1, &head);
}

static void key(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.key ^= 0x5a5a;
	rts(r, 1, &head);
}

static void before(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.addr -= 1 << 20;
	rts(r, 1, &head);
}

static void nowhere(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.addr = UINT64_MAX - 100;
	rts(r, 1, &head);
}

static void beyond(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.total = ROOM;
	rts(r, 1, &head);
}

/* More than the receive's length: the first ROOM bytes are read, which the sender does not have. */
static void huge(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.total = IVS_MSG_MAX;
	rts(r, 1, &head);
}

static void longer_than_all(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.total = UINT64_MAX;
	rts(r, 1, &head);
}

static void nothing(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.total = 0;
	rts(r, 1, &head);
}

/* One of its own messages may have the id of the victim's message to the honest rank. */
static void anothers(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	head.id = anothers_id;
	rts(r, 1, &head);
}

/* It cannot end the victim's message. */
static void ack(struct raw *r)
{
	raw_send(r, IVS_OP_ACK, 0, anothers_id, NULL, 0, NULL, 0);
}

/* It cannot request the bytes of the victim's message. */
static void cts(struct raw *r)
{
	raw_send(r, IVS_OP_CTS, 0, anothers_id, NULL, 0, NULL, 0);
}

/* Pieces of a message that is being read. */
static void pieces(struct raw *r)
{
	struct ivs_core_rts head = truth(r);
	struct ivs_part part = { .id = head.id };
	uint8_t bytes[1000];

	memset(bytes, 0x77, sizeof(bytes));
	rts(r, 1, &head);
	raw_send(r, IVS_OP_DATA, 0, 0, &part, sizeof(part), bytes, sizeof(bytes));
}

/* Messages of invalid kinds, which are ignored. */
static void kinds(struct raw *r)
{
	static const uint8_t flags[] = { 0, IVS_F_REGION, IVS_F_CORE | IVS_F_REGION, IVS_F_CORE | IVS_F_BOUNCE };
	struct ivs_core_rts head = truth(r);
	size_t i;

	for (i = 0; i < sizeof(flags); i++)
		raw_send(r, IVS_OP_TAGGED_RTS, flags[i], 1, &head, sizeof(head), NULL, 0);
	raw_send(r, IVS_OP_TAGGED_RTS, IVS_F_CORE, 1, &head, sizeof(head) - 8, NULL, 0);
	raw_send(r, IVS_OP_TAGGED, IVS_F_CORE, 1, NULL, 0, &head, sizeof(head));
	/* It may still send a correct announcement. */
	rts(r, 1, &head);
}

/* An announcement with payload. */
static void bytes(struct raw *r)
{
	struct ivs_core_rts head = truth(r);

	raw_send(r, IVS_OP_TAGGED_RTS, IVS_F_CORE, 1, &head, sizeof(head), &head, sizeof(head));
}

static const struct attack {
	void (*send)(struct raw *r);
	int err;    /* error of the receive; 0: it gets the bytes; -1: no match, and the receive waits */
	size_t len; /* bytes that it receives */
	bool races; /* or with LEN bytes, which were read before */
	bool again; /* a second receive also ends */
	enum where where;
	bool leaves; /* its endpoint is closed at once */
} attacks[] = {
	{ honest, .len = LEN },
	{ twice, .len = LEN, .again = true },
	{ nothing },
	{ kinds, .len = LEN },
	{ key, FI_EIO },
	{ before, FI_EIO },
	{ nowhere, FI_EIO },
	{ beyond, FI_EIO },
	{ huge, FI_EIO },
	{ longer_than_all, -1 },
	{ bytes, -1 },
	{ anothers, .len = LEN },
	{ ack, -1 },
	{ cts, -1 },
	{ honest, -1, .where = NO_ADDRESS },
	{ honest, -1, .where = NONSENSE },
	{ pieces, FI_EIO, .races = true },
	{ honest, FI_EIO, .leaves = true },
};
#define ATTACKS (sizeof(attacks) / sizeof(attacks[0]))

static void await(struct ctx *c, struct told *s, uint32_t step)
{
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < step)
		progress(c);
}

/* Runs the hostile rank: a new one for each attack. */
static void attack(struct ctx *c, struct told *s, uint32_t i)
{
	struct fi_cq_tagged_entry e;
	struct raw r;

	await(c, s, 2 * i + 1);
	raw_open(&r, s->addr);
	anothers_id = (i + 1) << 16;
	raw_hello(&r, attacks[i].where);
	attacks[i].send(&r);
	if (attacks[i].leaves)
		raw_close(&r);
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 2 * i + 2) {
		if (!attacks[i].leaves)
			fi_cq_read(r.cq, &e, 1);
		progress(c);
	}
	if (!attacks[i].leaves)
		raw_close(&r);
}

/* Returns true if the memory around the receive's is unchanged. */
static bool untouched(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != 0xee)
			return false;
	return true;
}

static void suffer(struct ctx *c, struct told *s, uint32_t i)
{
	static uint8_t room[GUARD + ROOM + GUARD], own[OWN];
	const struct attack *a = &attacks[i];
	uint8_t *in = room + GUARD;
	int k;

	memset(room, 0xee, sizeof(room));
	fill(own, OWN, i);
	/* The victim's own message to the honest rank, which receives it only at the end. */
	RETRY(c, fi_tsend(c->ep, own, OWN, NULL, c->peer[HONEST], i, own));
	for (k = 0; k <= a->again; k++)
		OK(fi_trecv(c->ep, in, ROOM, NULL, FI_ADDR_UNSPEC, 1, 0, in));
	__atomic_store_n(&s->step, 2 * i + 1, __ATOMIC_RELEASE);
	for (k = 0; k <= a->again && !a->err; k++) {
		struct fi_cq_tagged_entry e = wait_comp(c, c->rxcq);

		CHECK(e.op_context == in && e.len == a->len && filled(in, a->len, 1));
	}
	if (a->err > 0) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry err;
		ssize_t n;

		while ((n = fi_cq_read(c->rxcq, &e, 1)) == -FI_EAGAIN)
			progress(c);
		if (n == 1) {
			CHECK(a->races && e.op_context == in && e.len == LEN && filled(in, LEN, 1));
		} else {
			err = wait_err(c, c->rxcq);
			CHECK(err.op_context == in && err.err == a->err);
		}
	} else if (a->err) {
		/* This receive waits while other messages arrive. */
		OK(fi_trecv(c->ep, own, 0, NULL, c->peer[HONEST], 1000, 0, own));
		RETRY(c, fi_tinject(c->ep, "", 0, c->peer[HONEST], 1000));
		CHECK(wait_comp(c, c->rxcq).op_context == own);
		OK(fi_cancel(&c->ep->fid, in));
		CHECK(wait_err(c, c->rxcq).err == FI_ECANCELED);
	}
	CHECK(untouched(room, GUARD) && untouched(in + ROOM, GUARD));
	if (!a->err)
		CHECK(untouched(in + a->len, ROOM - a->len));
	__atomic_store_n(&s->step, 2 * i + 2, __ATOMIC_RELEASE);
	barrier(c);
	CHECK(wait_comp(c, c->txcq).op_context == own);
}

static void bystand(struct ctx *c, struct told *s, uint32_t i)
{
	static uint8_t in[OWN];

	await(c, s, 2 * i + 1);
	if (attacks[i].err < 0) {
		OK(fi_trecv(c->ep, in, 0, NULL, c->peer[VICTIM], 1000, 0, in));
		CHECK(wait_comp(c, c->rxcq).op_context == in);
		RETRY(c, fi_tinject(c->ep, "", 0, c->peer[VICTIM], 1000));
	}
	await(c, s, 2 * i + 2);
	memset(in, 0, OWN);
	OK(fi_trecv(c->ep, in, OWN, NULL, c->peer[VICTIM], i, 0, in));
	CHECK(wait_comp(c, c->rxcq).op_context == in && filled(in, OWN, i));
	barrier(c);
}

static void announced(struct ctx *c)
{
	struct told *s = shared();
	size_t len = sizeof(s->addr);
	uint32_t i;

	if (c->rank == VICTIM)
		OK(fi_getname(&c->ep->fid, s->addr, &len));
	barrier(c);
	for (i = 0; i < ATTACKS; i++) {
		if (c->rank == VICTIM)
			suffer(c, s, i);
		else if (c->rank == HONEST)
			bystand(c, s, i);
		else
			attack(c, s, i);
		if (c->rank == HOSTILE)
			barrier(c);
	}
}

const struct test test_wire[] = {
	{ "hosts_hostile", 3, announced, .per_host = 1, .env = { "FI_IVSHMEM_CORE=" RAW_CORE } }, { 0 }
};
