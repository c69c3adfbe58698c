/*
 * A third process plays another VM of the cluster, which can write all of the region, and whose messages bring bytes of
 * its choice into other ranks' memory. Messages that it forges, or replays, reach no other memory.
 */
#include <signal.h>
#include <sys/mman.h>

#include "../../fabric/base/message.h"
#include "../../fabric/region/siphash.h"
#include "forge.h"
#include "lists.h"

enum { BYTES = 4096, KEY = 7 };

/* Memory that the processes share outside of the region. */
struct told {
	uint32_t step;
	uint8_t secret[3][BYTES]; /* each rank's private memory, shared only so that the test sees it */
	uint64_t at;		  /* where forged bytes are in the victim's memory */
	pid_t pid;
	uint8_t addr[3][64];
	struct nm_mr line;
};

static void spin_step(struct ctx *c, struct told *s, uint32_t step)
{
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < step)
		progress(c);
}

static void next_step(struct told *s)
{
	__atomic_add_fetch(&s->step, 1, __ATOMIC_ACQ_REL);
}

/* Returns a process's slot, from its address (fabric/base/addr.h). */
static uint32_t slot_of(const struct told *s, int rank)
{
	uint16_t slot;

	memcpy(&slot, s->addr[rank] + 2, sizeof(slot));
	return slot;
}

static uint32_t epoch_of(const struct told *s, int rank)
{
	uint32_t epoch;

	memcpy(&epoch, s->addr[rank] + 4, sizeof(epoch));
	return epoch;
}

static void tell_address(struct ctx *c, struct told *s)
{
	size_t len = 64;

	OK(fi_getname(&c->ep->fid, s->addr[c->rank], &len));
	barrier(c);
}

static struct nm_mr *line_of(uint8_t *layout, const struct nm_layout_geometry *g, uint32_t slot, uint64_t key)
{
	struct nm_mr *m = (struct nm_mr *) (void *) (layout + g->mr_table) + (size_t) slot * (NM_LAYOUT_MR_COUNT + 1);

	for (int i = 0; i < NM_LAYOUT_MR_COUNT; i++)
		if (m[i].key == key && m[i].state)
			return &m[i];
	CHECK(!"the line");
	return NULL;
}

/* Computes the check word of an entry like mr.c. */
static uint64_t check_line(const uint8_t *key, const struct nm_mr *m, uint32_t slot, uint32_t epoch)
{
	uint64_t data[6] = {
		m->key, m->base, m->len, m->origin, (uint64_t) m->access << 32 | m->valid, (uint64_t) slot << 32 | epoch
	};

	return ivs_siphash(key, data, sizeof(data));
}

static void write_line(struct nm_mr *to, const struct nm_mr *line)
{
	uint64_t state = to->state;

	__atomic_store_n(&to->state, state | 1, __ATOMIC_SEQ_CST);
	memcpy((char *) to + 8, (const char *) line + 8, sizeof(*line) - 8);
	__atomic_store_n(&to->state, (state | 1) + 1, __ATOMIC_SEQ_CST);
}

static bool all(const uint8_t *p, int value)
{
	for (size_t i = 0; i < BYTES; i++)
		if (((const volatile uint8_t *) p)[i] != value)
			return false;
	return true;
}

/*
 * The other VM (2) has sent rank 1 bytes that resemble its proof, and claims in its slot to be rank 1's process. Rank 0
 * writes to memory that the other VM has registered.
 */
static void forged(struct ctx *c)
{
	static uint8_t received[64], mine[BYTES];
	struct told *s = shared();
	struct fid_mr *mr;

	tell_address(c, s);
	if (c->rank == 1) {
		OK(fi_trecv(c->ep, received, sizeof(received), NULL, c->peer[2], 1, 0, NULL));
		s->pid = getpid();
		s->at = (uintptr_t) received;
		next_step(s);
		wait_comp(c, c->rxcq);
		next_step(s);
		spin_step(c, s, 4);
		CHECK(all(s->secret[1], 0));
	} else if (c->rank == 2) {
		struct nm_layout_geometry g;
		uint8_t *layout = map_layout(&g);
		struct nm_slot *slot = (struct nm_slot *) (void *) (layout + g.slot_table) + slot_of(s, 2);
		uint32_t who[2] = { slot_of(s, 2), epoch_of(s, 2) };
		struct nm_proof proof = { .magic = NM_PROOF_MAGIC, .slot = who[0], .epoch = who[1], .ledger = -1 };
		struct nm_mr *line, forged_line;

		OK(fi_mr_reg(c->domain, mine, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
		spin_step(c, s, 1);
		memset(proof.key, 0x5a, sizeof(proof.key));
		RETRY(c, fi_tinject(c->ep, &proof, sizeof(proof), c->peer[1], 1));
		spin_step(c, s, 2);
		slot->pid = (uint64_t) s->pid;
		slot->secret = s->at;
		slot->proof = ivs_siphash(proof.key, who, sizeof(who)) | 1;
		line = line_of(layout, &g, who[0], KEY);
		forged_line = *line;
		forged_line.base = (uintptr_t) s->secret[1]; /* shared memory is at the same address in both */
		forged_line.access = NM_MR_READ | NM_MR_WRITE;
		forged_line.check = check_line(proof.key, &forged_line, who[0], who[1]);
		write_line(line, &forged_line);
		next_step(s);
		spin_step(c, s, 4);
		/* The write reached the memory of its addressee. */
		CHECK(all(mine, 9));
		OK(fi_close(&mr->fid));
	} else {
		static uint8_t out[BYTES];

		memset(out, 9, sizeof(out));
		spin_step(c, s, 3);
		RETRY(c, fi_write(c->ep, out, BYTES, NULL, c->peer[2], 0, KEY, NULL));
		wait_comp(c, c->txcq);
		CHECK(all(s->secret[1], 0));
		next_step(s);
	}
}

/*
 * Rank 1 withdraws memory and registers other memory under the same key. The other VM puts the entry of the first back
 * into the table. Rank 0's writes do not reach the first.
 */
static void withdrawn(struct ctx *c)
{
	struct told *s = shared();
	static uint8_t out[BYTES], now[BYTES];
	struct fid_mr *mr;

	tell_address(c, s);
	if (c->rank == 1) {
		OK(fi_mr_reg(c->domain, s->secret[1], BYTES, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
		next_step(s);
		spin_step(c, s, 3);
		CHECK(all(s->secret[1], 9));
		memset(s->secret[1], 0, BYTES);
		OK(fi_close(&mr->fid));
		OK(fi_mr_reg(c->domain, now, BYTES, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
		next_step(s);
		spin_step(c, s, 6);
		CHECK(all(s->secret[1], 0) && all(now, 9));
		OK(fi_close(&mr->fid));
	} else if (c->rank == 2) {
		struct nm_layout_geometry g;
		uint8_t *layout = map_layout(&g);

		spin_step(c, s, 1);
		s->line = *line_of(layout, &g, slot_of(s, 1), KEY);
		next_step(s);
		spin_step(c, s, 4);
		write_line(line_of(layout, &g, slot_of(s, 1), KEY), &s->line);
		next_step(s);
		spin_step(c, s, 6);
	} else {
		memset(out, 9, sizeof(out));
		spin_step(c, s, 2);
		RETRY(c, fi_write(c->ep, out, BYTES, NULL, c->peer[1], 0, KEY, NULL));
		wait_comp(c, c->txcq);
		next_step(s);
		spin_step(c, s, 5);
		RETRY(c, fi_write(c->ep, out, BYTES, NULL, c->peer[1], 0, KEY, NULL));
		wait_comp(c, c->txcq);
		next_step(s);
	}
}

/*
 * Rank 0 waits for a message from rank 1, a neighbour. The other VM forges an announcement in the ring between them,
 * for a place where rank 1 has a secret; or it replays an announcement of rank 1, whose memory holds a secret by now.
 * Rank 0 gets an error, and not the secret.
 */
static void read_of_neighbour(struct ctx *c, bool replayed)
{
	static uint8_t in[BYTES * 4], out[BYTES * 4];
	struct told *s = shared();
	static const uint32_t never;

	tell_address(c, s);
	if (c->rank == 1) {
		RETRY(c, fi_tinject(c->ep, "hello", 5, c->peer[0], 1));
		memset(out, 1, sizeof(out));
		RETRY(c, fi_tsend(c->ep, out, sizeof(out), NULL, c->peer[0], 2, NULL));
		wait_comp(c, c->txcq);
		memset(out, 0x77, sizeof(out));
		s->at = (uintptr_t) out;
		next_step(s);
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 4)
			sched_yield();
	} else if (c->rank == 2) {
		struct ivs_rendezvous_read sent, head = { .total = sizeof(out), .id = 1 << 16 };
		struct forge f;

		spin_step(c, s, 3);
		/* Rank 1's lines: two of a message with payload in the ring, and two of the announcement. */
		f = forge_ring(slot_of(s, 1), slot_of(s, 0), 4);
		memcpy(&sent, forge_line(&f, 2) + 16, IVS_RTS_SHOWN_BYTES);
		CHECK(sent.total == sizeof(out) && forge_line(&f, 2)[4] == IVS_OP_TAGGED_RTS);
		forge(&f, &never, IVS_OP_TAGGED_RTS, 0, 2, replayed ? &sent : &head, IVS_RTS_SHOWN_BYTES);
		__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
	} else {
		struct fi_cq_tagged_entry e;
		ssize_t n;

		OK(fi_trecv(c->ep, in, 8, NULL, c->peer[1], 1, 0, NULL));
		wait_comp(c, c->rxcq);
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in[0] == 1 && in[sizeof(in) - 1] == 1);
		next_step(s);
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
		next_step(s);
		while ((n = fi_cq_read(c->rxcq, &e, 1)) == -FI_EAGAIN)
			sched_yield();
		for (size_t i = 0; i < sizeof(in); i++)
			CHECK(in[i] != 0x77);
		CHECK(n == -FI_EAVAIL && wait_err(c, c->rxcq).err == FI_EIO);
		next_step(s);
	}
}

static void forged_read(struct ctx *c)
{
	read_of_neighbour(c, false);
}

static void replayed_read(struct ctx *c)
{
	read_of_neighbour(c, true);
}

/* Returns true if the area of a rank in the region holds BYTES consecutive bytes of the secret's value. */
static bool in_area(const uint8_t *layout, const struct nm_layout_geometry *g, uint32_t slot)
{
	const uint8_t *p = layout + g->areas + slot * g->area_bytes;

	for (uint64_t at = 0; at + BYTES <= g->area_bytes; at += BYTES / 2)
		if (all(p + at, 0x77))
			return true;
	return false;
}

/*
 * Rank 1 sends rank 0, a neighbour, a secret that is not sent through a region. Before rank 0 receives it, the other VM
 * answers in rank 0's name: that it has been received (then rank 1 would reuse its memory while rank 0 reads it), or
 * that it has to be sent after all (then it would pass through the region). The answer has the message's id, or is rank
 * 0's answer to the message before. Rank 1 gets an error, and rank 0 nothing.
 */
static void answer_of_neighbour(struct ctx *c, uint8_t op)
{
	static uint8_t in[BYTES * 4], out[BYTES * 4];
	struct told *s = shared();
	static const uint32_t never;

	tell_address(c, s);
	if (c->rank == 1) {
		memset(out, 1, sizeof(out));
		RETRY(c, fi_tsend(c->ep, out, sizeof(out), NULL, c->peer[0], 2, NULL));
		wait_comp(c, c->txcq);
		memset(out, 0x77, sizeof(out));
		RETRY(c, fi_tsend(c->ep, out, sizeof(out), NULL, c->peer[0], 2, NULL));
		next_step(s);
		CHECK(wait_err(c, c->txcq).err == FI_EIO);
		next_step(s);
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 3)
			sched_yield();
	} else if (c->rank == 2) {
		struct ivs_rendezvous_read sent;
		struct nm_layout_geometry g;
		uint8_t *layout = map_layout(&g);
		uint64_t tag, answer;
		struct forge f;

		spin_step(c, s, 1);
		forge_next(s->addr[1], s->addr[0], IVS_OP_TAGGED_RTS, &tag, &sent, IVS_RTS_SHOWN_BYTES);
		CHECK(sent.total == sizeof(out));
		f = forge_next(s->addr[0], s->addr[1], IVS_OP_SHOWN_ACK, &answer, NULL, 0);
		/* Its low bits are the index of the message in rank 1's ledger. */
		answer = op >= IVS_OP_SHOWN_ACK ? (answer & ~0xffffULL) | (sent.id & 0xffff) : sent.id;
		forge(&f, &never, op, 0, answer, NULL, 0);
		__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 2) {
			progress(c);
			CHECK(!in_area(layout, &g, slot_of(s, 1)));
		}
		next_step(s);
	} else {
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
		wait_comp(c, c->rxcq);
		CHECK(in[0] == 1 && in[sizeof(in) - 1] == 1);
		/* Does not poll until the test is over. */
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 3)
			sched_yield();
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
		CHECK(wait_err(c, c->rxcq).err == FI_EIO);
		for (size_t i = 0; i < sizeof(in); i++)
			CHECK(in[i] != 0x77);
	}
}

static void forged_ack(struct ctx *c)
{
	answer_of_neighbour(c, IVS_OP_ACK);
}

static void forged_cts(struct ctx *c)
{
	answer_of_neighbour(c, IVS_OP_CTS);
}

static void replayed_ack(struct ctx *c)
{
	answer_of_neighbour(c, IVS_OP_SHOWN_ACK);
}

static void replayed_cts(struct ctx *c)
{
	answer_of_neighbour(c, IVS_OP_SHOWN_CTS);
}

/*
 * Rank 0 has received a message of which rank 1 was asked to write a part. While the next one waits for its receive,
 * the other VM repeats the request in rank 0's name for the waiting message. Nothing is written to the place of the
 * first one.
 */
static void forged_coop(struct ctx *c)
{
	enum { LEN = 32 << 20 };
	struct told *s = shared();
	static const uint32_t never;
	static uint8_t buf[LEN]; /* rank 1's message stays in flight */

	tell_address(c, s);
	if (c->rank == 1) {
		memset(buf, 1, LEN);
		/* Its answer to the first message opens rank 0's ring, through which it requests the second. */
		for (int i = 0; i < 2; i++) {
			RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 2, NULL));
			wait_comp(c, c->txcq);
		}
		memset(buf, 0x77, LEN);
		RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 2, NULL));
		next_step(s);
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 2)
			sched_yield();
		for (int i = 0; i < 1000; i++)
			progress(c);
		next_step(s);
	} else if (c->rank == 2) {
		struct ivs_rendezvous_read sent;
		uint64_t tag, call;
		struct forge f;

		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 1)
			sched_yield();
		forge_next(s->addr[1], s->addr[0], IVS_OP_TAGGED_RTS, &tag, &sent, IVS_RTS_SHOWN_BYTES);
		f = forge_next(s->addr[0], s->addr[1], IVS_OP_COOP, &call, NULL, 0);
		forge(&f, &never, IVS_OP_COOP, 0, (call & ~0xffffffffULL) | sent.id, NULL, 0);
		__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
		next_step(s);
	} else {
		for (int i = 0; i < 2; i++) {
			memset(buf, 2, LEN);
			OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[1], 2, 0, NULL));
			wait_comp(c, c->rxcq);
		}
		while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 3)
			sched_yield();
		for (size_t i = 0; i < LEN; i++)
			CHECK(buf[i] == 1);
	}
}

/*
 * Rank 1 sends the start of a long message that is already complete, which no correct rank does, and is killed. The
 * receive that it has matched ends.
 */
static void forged_whole(struct ctx *c)
{
	struct told *s = shared();
	static const uint32_t never;
	char in[16];

	tell_address(c, s);
	if (c->rank) {
		struct ivs_long head = { .total = 16, .id = 1 };
		char payload[sizeof(head) + 16] = "";
		struct forge f;

		RETRY(c, fi_tinject(c->ep, "hello", 5, c->peer[0], 1));
		spin_step(c, s, 1);
		f = forge_ring(slot_of(s, 1), slot_of(s, 0), 2);
		memcpy(payload, &head, sizeof(head));
		forge(&f, &never, IVS_OP_TAGGED_LONG, 0, 2, payload, sizeof(payload));
		__atomic_store_n(f.activity, 1, __ATOMIC_RELEASE);
		raise(SIGKILL);
	}
	OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 1, 0, NULL));
	wait_comp(c, c->rxcq);
	OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[1], 2, 0, NULL));
	next_step(s);
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
}

const struct test test_forged[] = { { "forged_neighbour", 3, forged },
				    { "withdrawn_memory", 3, withdrawn },
				    { "forged_whole", 2, forged_whole, .killed = 1 },
				    /* Any size is read directly, without measuring. */
				    { "forged_read", 3, forged_read, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "replayed_read", 3, replayed_read, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "forged_ack", 3, forged_ack, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "forged_cts", 3, forged_cts, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "replayed_ack", 3, replayed_ack, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "forged_coop", 3, forged_coop, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { "replayed_cts", 3, replayed_cts, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
				    { 0 } };
