/* Reads, writes and atomic operations on other ranks' memory. */
#include <dlfcn.h>
#include <sched.h>

#include <nearmetal/fabric.h>

#include "lists.h"

#define BYTES (4 << 20)

struct target {
	uint64_t addr, key;
};

static struct fid_mr *mr;
static uint8_t *memory;

/* Each rank registers BYTES of memory, and all ranks know its place. */
static const struct target *show(struct ctx *c, bool in_region)
{
	struct target *t = shared();
	struct nm_fabric_memory *ops;

	if (in_region) {
		OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
		memory = ops->alloc(c->domain, 256 << 10);
		CHECK(memory && ops->inside(c->domain, memory, 256 << 10));
		CHECK(!ops->inside(c->domain, &ops, 1));
	} else {
		memory = malloc(BYTES);
	}
	CHECK(memory);
	memset(memory, 0, in_region ? 256 << 10 : BYTES);
	OK(fi_mr_reg(c->domain, memory, in_region ? 256 << 10 : BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		     (uint64_t) c->rank + 1, 0, &mr, NULL));
	t[c->rank].addr = 0;
	t[c->rank].key = fi_mr_key(mr);
	barrier(c);
	return t;
}

static void hide(struct ctx *c, bool in_region)
{
	struct nm_fabric_memory *ops;

	barrier(c);
	OK(fi_close(&mr->fid));
	if (in_region) {
		OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
		ops->free(c->domain, memory);
	} else {
		free(memory);
	}
}

static void rma_sizes(struct ctx *c, bool in_region)
{
	static const size_t sizes[] = { 1, 8, 48, 200, 8192, 8193, 100000, 2000000 };
	const struct target *t = show(c, in_region);
	uint8_t *buf = malloc(BYTES);
	struct fi_cq_tagged_entry e;
	size_t i;

	for (i = 0; i < 8 && (!in_region || sizes[i] < 200000); i++) {
		if (c->rank == 0) {
			fill(buf, sizes[i], (unsigned int) i);
			RETRY(c, fi_write(c->ep, buf, sizes[i], NULL, c->peer[1], t[1].addr + 11, t[1].key, buf));
			e = wait_comp(c, c->txcq);
			CHECK(e.op_context == buf && e.flags == (FI_RMA | FI_WRITE));
			memset(buf, 0, sizes[i]);
			RETRY(c, fi_read(c->ep, buf, sizes[i], NULL, c->peer[1], t[1].addr + 11, t[1].key, buf));
			e = wait_comp(c, c->txcq);
			CHECK(e.flags == (FI_RMA | FI_READ) && filled(buf, sizes[i], (unsigned int) i));
		}
		barrier(c);
		if (c->rank == 1)
			CHECK(filled(memory + 11, sizes[i], (unsigned int) i));
		barrier(c);
	}
	free(buf);
	hide(c, in_region);
}

static void rma(struct ctx *c)
{
	rma_sizes(c, false);
}

static void rma_region(struct ctx *c)
{
	rma_sizes(c, true);
}

static void rma_calls(struct ctx *c)
{
	const struct target *t = show(c, false);
	char buf[400];
	struct iovec iov[2] = { { buf, 150 }, { buf + 150, 250 } };
	struct fi_rma_iov rma[2] = { { 1000, 300, t[1].key }, { 5000, 100, t[1].key } };
	struct fi_msg_rma msg = {
		.msg_iov = iov, .iov_count = 2, .addr = c->peer[1], .rma_iov = rma, .rma_iov_count = 2, .data = 31
	};
	struct fi_cq_tagged_entry e;

	fill(buf, sizeof(buf), 4);
	if (c->rank == 0) {
		RETRY(c, fi_writev(c->ep, iov, NULL, 2, c->peer[1], 0, t[1].key, NULL));
		wait_comp(c, c->txcq);
		RETRY(c, fi_writemsg(c->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION));
		wait_comp(c, c->txcq);
		RETRY(c, fi_writedata(c->ep, buf, 400, NULL, 32, c->peer[1], 10000, t[1].key, NULL));
		wait_comp(c, c->txcq);
		RETRY(c, fi_inject_write(c->ep, buf, 400, c->peer[1], 20000, t[1].key));
		RETRY(c, fi_inject_writedata(c->ep, buf, 400, 33, c->peer[1], 30000, t[1].key));
		memset(buf, 0, sizeof(buf));
		RETRY(c, fi_readmsg(c->ep, &msg, FI_COMPLETION));
		wait_comp(c, c->txcq);
		CHECK(filled(buf, sizeof(buf), 4));
		memset(buf, 0, sizeof(buf));
		RETRY(c, fi_readv(c->ep, iov, NULL, 2, c->peer[1], 20000, t[1].key, NULL));
		wait_comp(c, c->txcq);
		CHECK(filled(buf, sizeof(buf), 4));
	} else {
		uint64_t k;

		for (k = 31; k <= 33; k++) {
			e = wait_comp(c, c->rxcq);
			CHECK(e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
			CHECK(e.data == k && e.len == 400);
		}
		CHECK(filled(memory, 400, 4) && filled(memory + 30000, 400, 4));
		CHECK(!memcmp(memory + 1000, buf, 300) && !memcmp(memory + 5000, buf + 300, 100));
	}
	hide(c, false);
}

/* Access to memory that was not registered, or not for it, is refused, and the sender is informed. */
static void refused(struct ctx *c)
{
	const struct target *t = show(c, false);
	static char buf[100000];
	struct fid_mr *ro;

	OK(fi_mr_reg(c->domain, memory, 100, FI_REMOTE_READ, 0, 77, 0, &ro, NULL));
	barrier(c);
	if (c->rank == 0) {
		RETRY(c, fi_write(c->ep, buf, 8, NULL, c->peer[1], 0, 12345, NULL));
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
		RETRY(c, fi_write(c->ep, buf, sizeof(buf), NULL, c->peer[1], BYTES - 5, t[1].key, NULL));
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
		RETRY(c, fi_read(c->ep, buf, 8, NULL, c->peer[1], UINT64_MAX - 3, t[1].key, NULL));
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
		RETRY(c, fi_write(c->ep, buf, 8, NULL, c->peer[1], 0, 77, NULL));
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
		RETRY(c, fi_read(c->ep, buf, 8, NULL, c->peer[1], 0, 77, NULL));
		wait_comp(c, c->txcq);
	}
	barrier(c);
	OK(fi_close(&ro->fid));
	barrier(c);
	if (c->rank == 0) {
		RETRY(c, fi_read(c->ep, buf, 8, NULL, c->peer[1], 0, 77, NULL));
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
	}
	hide(c, false);
}

/*
 * Writes a word to rank 1's address at, under key, and reads it back; or both are refused, as reads and writes state.
 */
static void write_and_read(struct ctx *c, uint64_t at, uint64_t key, uint64_t value, bool reads, bool writes)
{
	uint64_t got = 0;

	RETRY(c, fi_write(c->ep, &value, 8, NULL, c->peer[1], at, key, NULL));
	if (writes)
		wait_comp(c, c->txcq);
	else
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
	RETRY(c, fi_read(c->ep, &got, 8, NULL, c->peer[1], at, key, NULL));
	if (reads)
		wait_comp(c, c->txcq);
	else
		CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
	CHECK(!(reads && writes) || got == value);
}

/*
 * A known target is not searched again, but its bounds still hold, and other memory under the same key has its own
 * place and rights.
 */
static void same_key(struct ctx *c)
{
	static const struct {
		size_t offset;
		uint64_t access;
	} places[] = {
		{ 100, FI_REMOTE_READ | FI_REMOTE_WRITE },
		{ 3000, FI_REMOTE_READ | FI_REMOTE_WRITE },
		{ 6000, FI_REMOTE_READ },
		{ 9000, FI_REMOTE_WRITE },
		{ 12000, FI_REMOTE_READ | FI_REMOTE_WRITE },
	};
	const uint64_t key = 4711;
	uint64_t value;
	size_t i, turn;

	show(c, true);
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		bool reads = places[i].access & FI_REMOTE_READ, writes = places[i].access & FI_REMOTE_WRITE;
		struct fid_mr *own = NULL;

		if (c->rank == 1)
			OK(fi_mr_reg(c->domain, memory + places[i].offset, 1000, places[i].access, 0, key, 0, &own,
				     NULL));
		barrier(c);
		for (turn = 0; c->rank == 0 && turn < 3; turn++) {
			write_and_read(c, 8 * turn, key, 1000 * i + turn + 1, reads, writes);
			write_and_read(c, 992, key, 1000 * i, reads, writes);
			write_and_read(c, 993, key, 666, false, false);
			write_and_read(c, UINT64_MAX - 3, key, 666, false, false);
			write_and_read(c, 0, key + 8, 666, false, false); /* an adjacent key */
		}
		barrier(c);
		for (turn = 0; c->rank == 1 && turn < 3; turn++) {
			memcpy(&value, memory + places[i].offset + 8 * turn, 8);
			CHECK(value == (writes ? 1000 * i + turn + 1 : 0));
		}
		if (own)
			OK(fi_close(&own->fid));
		barrier(c);
		if (c->rank == 0)
			write_and_read(c, 0, key, 666, false, false);
		barrier(c);
	}
	hide(c, true);
}

static void rma_counters(struct ctx *c)
{
	const struct target *t = show(c, false);
	uint64_t v = 5, w = 0;

	if (c->rank == 0) {
		RETRY(c, fi_write(c->ep, &v, 8, NULL, c->peer[1], 0, t[1].key, NULL));
		OK(fi_cntr_wait(c->wr_cntr, 1, -1));
		RETRY(c, fi_inject_write(c->ep, &v, 8, c->peer[1], 8, t[1].key));
		OK(fi_cntr_wait(c->wr_cntr, 2, -1));
		RETRY(c, fi_read(c->ep, &w, 8, NULL, c->peer[1], 0, t[1].key, NULL));
		OK(fi_cntr_wait(c->rd_cntr, 1, -1));
		CHECK(w == 5);
	}
	hide(c, false);
}

/* The same operation in this process, in the plainest form. */
#define REFERENCE(name, type) \
	static type ref_##name(enum fi_op op, type d, type s) \
	{ \
		switch (op) { \
		case FI_MIN: return s < d ? s : d; \
		case FI_MAX: return s > d ? s : d; \
		case FI_SUM: return (type) (d + s); \
		case FI_PROD: return (type) (d * s); \
		case FI_LOR: return d || s; \
		case FI_LAND: return d && s; \
		case FI_LXOR: return !d != !s; \
		case FI_ATOMIC_WRITE: return s; \
		default: return d; \
		} \
	}
REFERENCE(i32, int32_t)
REFERENCE(u64, uint64_t)
REFERENCE(dbl, double)

#define ATOMICS(name, type, fitype) \
	static void atomics_##name(struct ctx *c, const struct target *t) \
	{ \
		static const enum fi_op ops[] = { FI_MIN, FI_MAX,  FI_SUM,  FI_PROD, \
						  FI_LOR, FI_LAND, FI_LXOR, FI_ATOMIC_WRITE }; \
		type start[5] = { 1, 0, 7, 3, 100 }, with[5] = { 2, 1, 7, 0, 50 }, was[5], now[5]; \
		size_t o, i; \
		for (o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) { \
			RETRY(c, fi_write(c->ep, start, sizeof(start), NULL, c->peer[1], 64, t[1].key, NULL)); \
			wait_comp(c, c->txcq); \
			RETRY(c, fi_fetch_atomic(c->ep, with, 5, NULL, was, NULL, c->peer[1], 64, t[1].key, fitype, \
						 ops[o], NULL)); \
			CHECK(wait_comp(c, c->txcq).flags == (FI_ATOMIC | FI_READ)); \
			RETRY(c, fi_fetch_atomic(c->ep, with, 5, NULL, now, NULL, c->peer[1], 64, t[1].key, fitype, \
						 FI_ATOMIC_READ, NULL)); \
			wait_comp(c, c->txcq); \
			for (i = 0; i < 5; i++) \
				CHECK(was[i] == start[i]); \
			for (i = 0; i < 5; i++) \
				CHECK(now[i] == ref_##name(ops[o], start[i], with[i])); \
		} \
	}
ATOMICS(i32, int32_t, FI_INT32)
ATOMICS(u64, uint64_t, FI_UINT64)
ATOMICS(dbl, double, FI_DOUBLE)

static void compare_swap(struct ctx *c, const struct target *t)
{
	static const enum fi_op ops[] = { FI_CSWAP,    FI_CSWAP_NE, FI_CSWAP_LE, FI_CSWAP_LT,
					  FI_CSWAP_GE, FI_CSWAP_GT, FI_MSWAP };
	uint32_t start[3] = { 5, 6, 7 }, cmp[3] = { 6, 6, 6 }, with[3] = { 15, 16, 17 };
	uint32_t was[3], now[3], want;
	size_t o, i;

	for (o = 0; o < 7; o++) {
		RETRY(c, fi_write(c->ep, start, sizeof(start), NULL, c->peer[1], 0, t[1].key, NULL));
		wait_comp(c, c->txcq);
		RETRY(c, fi_compare_atomic(c->ep, with, 3, NULL, cmp, NULL, was, NULL, c->peer[1], 0, t[1].key,
					   FI_UINT32, ops[o], NULL));
		wait_comp(c, c->txcq);
		RETRY(c, fi_read(c->ep, now, sizeof(now), NULL, c->peer[1], 0, t[1].key, NULL));
		wait_comp(c, c->txcq);
		for (i = 0; i < 3; i++) {
			bool swap = ops[o] == FI_CSWAP	    ? cmp[i] == start[i]
				    : ops[o] == FI_CSWAP_NE ? cmp[i] != start[i]
				    : ops[o] == FI_CSWAP_LE ? cmp[i] <= start[i]
				    : ops[o] == FI_CSWAP_LT ? cmp[i] < start[i]
				    : ops[o] == FI_CSWAP_GE ? cmp[i] >= start[i]
							    : cmp[i] > start[i];

			want = ops[o] == FI_MSWAP ? (with[i] & cmp[i]) | (start[i] & ~cmp[i])
			       : swap		  ? with[i]
						  : start[i];
			CHECK(was[i] == start[i] && now[i] == want);
		}
	}
}

/* Every operation on every type is executed, or refused with the same error. */
static void every_type(struct ctx *c, const struct target *t)
{
	char a[4096], r[4096];
	size_t count, type, op;

	memset(a, 0, sizeof(a));
	for (type = FI_INT8; type <= FI_UINT128; type++)
		for (op = FI_MIN; op <= FI_MSWAP; op++) {
			int w = fi_atomicvalid(c->ep, (enum fi_datatype) type, (enum fi_op) op, &count);
			ssize_t n;

			if (op == FI_ATOMIC_READ || op >= FI_CSWAP) {
				CHECK(w == -FI_EOPNOTSUPP);
				continue;
			}
			n = fi_atomic(c->ep, a, 1, NULL, c->peer[1], 4096, t[1].key, (enum fi_datatype) type,
				      (enum fi_op) op, NULL);
			CHECK(!w == !n);
			if (!n)
				CHECK(wait_comp(c, c->txcq).flags == (FI_ATOMIC | FI_WRITE));
			n = fi_fetch_atomic(c->ep, a, 1, NULL, r, NULL, c->peer[1], 4096, t[1].key,
					    (enum fi_datatype) type, (enum fi_op) op, NULL);
			CHECK(!w == !n);
			if (!n)
				wait_comp(c, c->txcq);
		}
	OK(fi_atomicvalid(c->ep, FI_INT64, FI_SUM, &count));
	CHECK(count == 512);
	CHECK(fi_atomic(c->ep, a, count + 1, NULL, c->peer[1], 0, t[1].key, FI_INT64, FI_SUM, NULL) == -FI_EINVAL);
	/* The largest operations. */
	RETRY(c, fi_fetch_atomic(c->ep, a, count, NULL, r, NULL, c->peer[1], 0, t[1].key, FI_INT64, FI_SUM, NULL));
	wait_comp(c, c->txcq);
	RETRY(c, fi_inject_atomic(c->ep, a, count, c->peer[1], 0, t[1].key, FI_INT64, FI_SUM));
	RETRY(c, fi_atomic(c->ep, a, 1, NULL, c->peer[1], BYTES - 4, t[1].key, FI_INT64, FI_SUM, NULL));
	CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
}

static void atomics(struct ctx *c)
{
	const struct target *t = show(c, false);

	if (c->rank == 0) {
		atomics_i32(c, t);
		atomics_u64(c, t);
		atomics_dbl(c, t);
		compare_swap(c, t);
		every_type(c, t);
	}
	hide(c, false);
}

/*
 * Memory is registered twice, and one registration is closed during a read: under the other's key the read continues,
 * under its own it fails. More is read than fits the buffers in between, so that the read is still in progress.
 */
static void two_keys(struct ctx *c)
{
	struct target *t = shared();
	uint64_t key[2] = { 11, 12 };
	uint8_t *buf = malloc(BYTES);
	struct fid_mr *second[2];
	int i;

	fill(buf, BYTES, 7);
	for (i = 0; i < 2; i++)
		OK(fi_mr_reg(c->domain, buf, BYTES, FI_REMOTE_READ, 0, key[i], 0, &second[i], NULL));
	t[0].key = t[1].key = 0;
	barrier(c);
	for (i = 0; i < 2; i++) {
		if (c->rank == 0) {
			memset(buf, 0, BYTES);
			RETRY(c, fi_read(c->ep, buf, BYTES, NULL, c->peer[1], 0, key[1], buf));
			__atomic_store_n(&t[i].key, 1, __ATOMIC_RELEASE);
			while (__atomic_load_n(&t[i].key, __ATOMIC_ACQUIRE) != 2)
				sched_yield();
			if (i == 0) {
				wait_comp(c, c->txcq);
				CHECK(filled(buf, BYTES, 7));
			} else {
				CHECK(wait_err(c, c->txcq).err == FI_EKEYREJECTED);
			}
		} else {
			while (__atomic_load_n(&t[i].key, __ATOMIC_ACQUIRE) != 1)
				sched_yield();
			progress(c);
			OK(fi_close(&second[i]->fid));
			__atomic_store_n(&t[i].key, 2, __ATOMIC_RELEASE);
		}
		barrier(c);
	}
	if (c->rank == 0)
		for (i = 0; i < 2; i++)
			OK(fi_close(&second[i]->fid));
	free(buf);
}

/* Three ranks add to one number; no addition is lost. */
static void concurrent(struct ctx *c)
{
	enum { COUNT = 2000 };
	const struct target *t = show(c, false);
	uint64_t one = 1, total;
	int i;

	for (i = 0; i < COUNT; i++) {
		RETRY(c, fi_atomic(c->ep, &one, 1, NULL, c->peer[0], 8, t[0].key, FI_UINT64, FI_SUM, NULL));
		wait_comp(c, c->txcq);
	}
	barrier(c);
	memcpy(&total, memory + 8, 8);
	CHECK(c->rank || total == (uint64_t) (COUNT * c->procs));
	hide(c, false);
}

/* A message whose bytes are in the region is copied once, by its receiver. */
static void send_from_region(struct ctx *c)
{
	struct nm_fabric_memory *ops;
	uint8_t *p, *in = malloc(200000);

	OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
	p = ops->alloc(c->domain, 200000);
	CHECK(p);
	CHECK(!ops->alloc(c->domain, (size_t) 1 << 40));
	fill(p, 200000, 6);
	OK(fi_trecv(c->ep, in, 200000, NULL, c->peer[!c->rank], 1, 0, NULL));
	RETRY(c, fi_tsend(c->ep, p, 200000, NULL, c->peer[!c->rank], 1, NULL));
	wait_comp(c, c->txcq);
	wait_comp(c, c->rxcq);
	CHECK(filled(in, 200000, 6));
	barrier(c);
	ops->free(c->domain, p);
	CHECK(ops->alloc(c->domain, 100000) != NULL);
	free(in);
}

/* Returns a function of the provider's file, as a library without a domain finds it. */
static void *provider(const char *name)
{
	const char *folder = getenv("FI_PROVIDER_PATH");
	char path[4096];
	void *file, *p;

	CHECK(folder);
	folder += *folder == '+';
	snprintf(path, sizeof(path), "%s%s", folder, strstr(folder, "-fi.so") ? "" : "/libivshmem-fi.so");
	file = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	CHECK(file);
	p = dlsym(file, name);
	CHECK(p);
	return p;
}

/*
 * Memory for a program without an endpoint: peers can reach it like any in the region. After it is freed, in parts and
 * completely, it is allocated again. Until then the program has it even though the endpoint is closed, and so the slot
 * stays claimed.
 */
static void process_memory(struct ctx *c)
{
	static const struct setup plain;
	void *(*alloc)(size_t);
	int (*give)(void *);
	struct target *t = shared();
	uint8_t *p[3], buf[100];
	struct nm_fabric_memory *ops;
	static uint8_t no;
	void *all, *other;
	int i;

	open_all(c, &plain);
	exchange(c);
	alloc = (void *(*) (size_t) ) provider("nm_fabric_alloc");
	give = (int (*)(void *)) provider("nm_fabric_free");
	OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
	CHECK(!alloc(0) && !alloc((size_t) 1 << 40) && !alloc(SIZE_MAX));
	CHECK(give(&no) && give(NULL));
	all = alloc(40960);
	CHECK(all && ops->inside(c->domain, all, 40960));
	OK(give(all));
	CHECK(give(all));
	for (i = 0; i < 3; i++) {
		p[i] = alloc(10000);
		CHECK(p[i] && ops->inside(c->domain, p[i], 10000));
		memset(p[i], i, 10000);
	}
	/* The hole in the middle is used for blocks that fit, and not for larger ones. */
	OK(give(p[1]));
	other = alloc(4096);
	CHECK((uint8_t *) other == p[1] && (p[1] = alloc(4097)) && p[1] == (uint8_t *) other + 4096);
	CHECK(p[0][9999] == 0 && p[2][9999] == 2);
	for (i = 0; i < 3; i++)
		OK(give(p[i]));
	OK(give(other));
	memory = alloc(40960);
	CHECK(memory == all);

	OK(fi_mr_reg(c->domain, memory, 40960, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	t[c->rank].addr = 0;
	t[c->rank].key = fi_mr_key(mr);
	barrier(c);
	fill(buf, sizeof(buf), (unsigned int) c->rank);
	RETRY(c, fi_write(c->ep, buf, sizeof(buf), NULL, c->peer[!c->rank], 40860, t[!c->rank].key, NULL));
	wait_comp(c, c->txcq);
	barrier(c);
	CHECK(filled(memory + 40860, 100, (unsigned int) !c->rank));
	barrier(c);
	OK(fi_close(&mr->fid));
	/* One of the two ranks frees it after everything is closed, the other keeps it. */
	close_all(c);
	CHECK(filled(memory + 40860, 100, (unsigned int) !c->rank));
	memset(memory, 0xaa, 40960);
	if (c->rank == 0)
		OK(give(memory));
}

/* A program that allocates all memory does not get all: room for a ring to every rank is kept. */
static void greedy(struct ctx *c)
{
	void *(*alloc)(size_t) = (void *(*) (size_t) ) provider("nm_fabric_alloc");
	int (*give)(void *) = (int (*)(void *)) provider("nm_fabric_free");
	struct nm_fabric_memory *ops;
	size_t bytes = 0, more = 0;
	void *first = NULL, *p;

	OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
	while ((p = alloc(65536))) {
		first = first ? first : p;
		memset(p, 1, 65536);
		bytes += 65536;
	}
	while (ops->alloc(c->domain, 65536))
		more += 65536;
	CHECK(bytes && more);
	barrier(c);
	OK(give(first));
	CHECK(alloc(65536) == first);
}

const struct test test_memory[] = {
	{ "rma", 2, rma },
	{ "rma_no_cma", 2, rma, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "rma_region", 2, rma_region, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "rma_two_keys", 2, two_keys, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "rma_calls", 2, rma_calls },
	{ "rma_calls_no_cma", 2, rma_calls, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "refused", 2, refused },
	{ "refused_no_cma", 2, refused, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "rma_same_key", 2, same_key },
	{ "rma_same_key_no_cma", 2, same_key, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "rma_counters", 2, rma_counters, .setup = { .counters = true } },
	{ "rma_counters_no_cma", 2, rma_counters, .setup = { .counters = true }, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "atomics", 2, atomics },
	{ "concurrent_atomics", 3, concurrent },
	{ "rma_network", 2, rma, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "atomics_network", 2, atomics, .env = { "FI_IVSHMEM_REGION=none", "FI_IVSHMEM_CORE=auto" } },
	{ "process_memory", 2, process_memory, .bare = true },
	{ "greedy", 4, greedy },
	{ "send_from_region", 2, send_from_region, .env = { "FI_IVSHMEM_CMA=0" } },
	{ 0 }
};
