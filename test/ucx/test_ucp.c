/* UCX as MPIs use it, over the transport: its public interface ucp, from the headers of any version. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "harness.h"

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h eps[RANKS_MAX];
static int failures; /* endpoints whose peer is gone */

static void progress(void)
{
	ucp_worker_progress(worker);
}

static void failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void) arg;
	(void) ep;
	(void) status;
	failures++;
}

static void start(uint64_t features, bool errors)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = features };
	ucp_worker_params_t worker_params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					      .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_config_t *config;
	ucp_address_t *address;
	size_t len;
	int i;

	EXPECT(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	EXPECT(ucp_init(&params, config, &context) == UCS_OK);
	ucp_config_release(config);
	EXPECT(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
	EXPECT(ucp_worker_get_address(worker, &address, &len) == UCS_OK && len <= ADDRESS_MAX);
	memcpy(shared->address[rank], address, len);
	shared->address_len[rank] = len;
	ucp_worker_release_address(worker, address);
	barrier(NULL);
	for (i = 0; i < ranks; i++) {
		ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
						    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
						    UCP_EP_PARAM_FIELD_ERR_HANDLER,
				      .address = (const ucp_address_t *) shared->address[i],
				      .err_mode = errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
				      .err_handler = { failed, NULL } };

		if (i != rank)
			EXPECT(ucp_ep_create(worker, &p, &eps[i]) == UCS_OK);
	}
}

/* Waits for a request. Returns its status. */
static ucs_status_t complete(void *request)
{
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(request))
		return UCS_PTR_STATUS(request);
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		progress();
	ucp_request_free(request);
	return status;
}

static void stop(void)
{
	ucp_request_param_t none = { .op_attr_mask = 0 };
	int i;

	EXPECT(complete(ucp_worker_flush_nbx(worker, &none)) == UCS_OK);
	barrier(progress);
	for (i = 0; i < ranks; i++)
		if (eps[i])
			EXPECT(complete(ucp_ep_close_nbx(eps[i], &none)) == UCS_OK);
	barrier(progress);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

static void *send_tag(int to, const void *data, size_t len, uint64_t tag)
{
	ucp_request_param_t none = { .op_attr_mask = 0 };

	return ucp_tag_send_nbx(eps[to], data, len, tag, &none);
}

static void *receive_tag(void *data, size_t len, uint64_t tag)
{
	ucp_request_param_t none = { .op_attr_mask = 0 };

	return ucp_tag_recv_nbx(worker, data, len, tag, UINT64_MAX, &none);
}

static void __attribute__((noinline)) fill(uint8_t *data, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		data[i] = (uint8_t) (seed * 31 + i * 7 + (i >> 8));
}

static bool filled(const uint8_t *data, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (data[i] != (uint8_t) (seed * 31 + i * 7 + (i >> 8)))
			return false;
	return true;
}

/* Bytes of message n: all kinds of lengths, the same for every rank. */
static size_t length_of(uint32_t n)
{
	static const size_t edges[] = { 0,    1,    7,	   8,	  9,	 40,	 48,	  56,	  57,
					320,  327,  328,   329,	  336,	 337,	 344,	  4096,	  8191,
					8192, 8193, 32768, 32769, 65536, 100000, 1 << 20, 3000001 };
	uint32_t x = n * 2654435761U;

	if (n < sizeof(edges) / sizeof(edges[0]))
		return edges[n];
	return n % 7 ? x % 2000 : x % 200000;
}

/* Everybody sends to everybody, eight messages at a time, and compares what comes. */
static void messages(void)
{
	enum { DEPTH = 8, COUNT = 120, MOST = 3000001 };
	uint8_t *out[DEPTH], *in[RANKS_MAX][DEPTH];
	void *sent[RANKS_MAX][DEPTH], *got[RANKS_MAX][DEPTH];
	uint32_t n, k;
	int peer;

	start(UCP_FEATURE_TAG, false);
	for (k = 0; k < DEPTH; k++) {
		out[k] = malloc(MOST);
		for (peer = 0; peer < ranks; peer++)
			in[peer][k] = malloc(MOST);
	}
	for (n = 0; n < COUNT; n += DEPTH) {
		for (k = 0; k < DEPTH; k++) {
			size_t len = length_of(n + k);

			fill(out[k], len, (uint32_t) rank * 1000 + n + k);
			for (peer = 0; peer < ranks; peer++) {
				if (peer == rank)
					continue;
				/* Half of the receives come before what they wait for, half after it. */
				if (k % 2)
					got[peer][k] = receive_tag(in[peer][k], len, (uint64_t) peer << 32 | (n + k));
				sent[peer][k] = send_tag(peer, out[k], len, (uint64_t) rank << 32 | (n + k));
			}
		}
		for (k = 0; k < DEPTH; k++)
			for (peer = 0; peer < ranks; peer++) {
				size_t len = length_of(n + k);

				if (peer == rank)
					continue;
				if (!(k % 2))
					got[peer][k] = receive_tag(in[peer][k], len, (uint64_t) peer << 32 | (n + k));
				EXPECT(complete(got[peer][k]) == UCS_OK);
				EXPECT(filled(in[peer][k], len, (uint32_t) peer * 1000 + n + k));
			}
		for (k = 0; k < DEPTH; k++)
			for (peer = 0; peer < ranks; peer++)
				if (peer != rank)
					EXPECT(complete(sent[peer][k]) == UCS_OK);
	}
	stop();
}

/* Long messages in a row both ways at once, more than there are bounce buffers for: their pieces take turns. */
static void rows(void)
{
	enum { ROW = 6, BYTES = (2 << 20) + 5 };
	uint8_t *out[ROW], *in[ROW];
	void *sends[ROW], *receives[ROW];
	int n;

	start(UCP_FEATURE_TAG, false);
	for (n = 0; n < ROW; n++) {
		out[n] = malloc(BYTES);
		in[n] = calloc(1, BYTES);
		fill(out[n], BYTES, (uint32_t) (rank * ROW + n));
		receives[n] = receive_tag(in[n], BYTES, (uint64_t) n);
	}
	barrier(progress);
	for (n = 0; n < ROW; n++)
		sends[n] = send_tag(!rank, out[n], BYTES, (uint64_t) n);
	for (n = ROW - 1; n >= 0; n--) {
		EXPECT(complete(receives[n]) == UCS_OK && filled(in[n], BYTES, (uint32_t) (!rank * ROW + n)));
		EXPECT(complete(sends[n]) == UCS_OK);
		free(out[n]);
		free(in[n]);
	}
	stop();
}

/* Far more comes than a region of 16 MiB holds, before any receive is posted. */
static void flood(void)
{
	enum { COUNT = 3000, BYTES = 7000 };
	static uint8_t buffer[BYTES];
	void **requests = calloc(COUNT, sizeof(*requests));
	uint8_t *data;
	uint32_t n;

	/* A message of this length is sent without being asked for. */
	setenv("UCX_RNDV_THRESH", "inf", 1);
	start(UCP_FEATURE_TAG, false);
	if (!rank) {
		data = malloc((size_t) COUNT * BYTES);
		for (n = 0; n < COUNT; n++) {
			fill(data + (size_t) n * BYTES, BYTES, n);
			requests[n] = send_tag(1, data + (size_t) n * BYTES, BYTES, n);
		}
		/* Nobody has read anything yet. */
		barrier(NULL);
		for (n = 0; n < COUNT; n++)
			EXPECT(complete(requests[n]) == UCS_OK);
		barrier(progress);
	} else {
		barrier(NULL);
		barrier(progress);
		for (n = 0; n < COUNT; n++) {
			EXPECT(complete(receive_tag(buffer, BYTES, n)) == UCS_OK);
			EXPECT(filled(buffer, BYTES, n));
		}
	}
	stop();
}

static uint8_t target[1 << 20];
static uint64_t counter;

static ucs_status_t on_message(void *arg, const void *header, size_t header_len, void *data, size_t len,
			       const ucp_am_recv_param_t *param)
{
	(void) arg;
	EXPECT(header_len == 5 && !memcmp(header, "hello", 5) && !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV));
	EXPECT(filled(data, len, 3));
	counter++;
	return UCS_OK;
}

/* Memory of a peer's, atomics, streams and active messages. */
static void others(void)
{
	ucp_mem_map_params_t map = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
				     .address = target,
				     .length = sizeof(target) };
	ucp_mem_map_params_t map_counter = { .field_mask = map.field_mask, .address = &counter, .length = 8 };
	ucp_request_param_t none = { .op_attr_mask = 0 }, fetch, whole;
	ucp_am_handler_param_t am = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
				      .id = 5,
				      .cb = on_message };
	uint8_t *mine = malloc(sizeof(target));
	uint64_t one = 1, before = 0;
	ucp_mem_h memh[2];
	ucp_rkey_h rkey[2];
	void *packed;
	size_t len;
	int i, other = !rank;

	start(UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_STREAM | UCP_FEATURE_AM, false);
	EXPECT(ucp_worker_set_am_recv_handler(worker, &am) == UCS_OK);
	EXPECT(ucp_mem_map(context, &map, &memh[0]) == UCS_OK &&
	       ucp_mem_map(context, &map_counter, &memh[1]) == UCS_OK);
	for (i = 0; i < 2; i++) {
		EXPECT(ucp_rkey_pack(context, memh[i], &packed, &len) == UCS_OK && len <= ADDRESS_MAX);
		barrier(progress);
		memcpy(shared->address[rank], packed, len);
		ucp_rkey_buffer_release(packed);
		barrier(progress);
		EXPECT(ucp_ep_rkey_unpack(eps[other], shared->address[other], &rkey[i]) == UCS_OK);
		barrier(progress);
	}
	/* The two processes are of one program that was forked: addresses are alike. */
	for (i = 0; i < 3; i++) {
		size_t bytes = i == 0 ? 100 : i == 1 ? 20000 : sizeof(target);

		fill(mine, bytes, (uint32_t) (rank + i));
		EXPECT(complete(ucp_put_nbx(eps[other], mine, bytes, (uintptr_t) target, rkey[0], &none)) == UCS_OK);
		EXPECT(complete(ucp_ep_flush_nbx(eps[other], &none)) == UCS_OK);
		barrier(progress);
		EXPECT(filled(target, bytes, (uint32_t) (other + i)));
		memset(mine, 0, bytes);
		EXPECT(complete(ucp_get_nbx(eps[other], mine, bytes, (uintptr_t) target, rkey[0], &none)) == UCS_OK);
		EXPECT(filled(mine, bytes, (uint32_t) (rank + i)));
		barrier(progress);
	}
	fetch = (ucp_request_param_t) { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
					.datatype = ucp_dt_make_contig(8),
					.reply_buffer = &before };
	for (i = 0; i < 100; i++) {
		EXPECT(complete(ucp_atomic_op_nbx(eps[other], UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t) &counter, rkey[1],
						  &fetch)) == UCS_OK);
		EXPECT(before == (uint64_t) i);
	}
	barrier(progress);
	EXPECT(counter == 100);
	barrier(progress);
	counter = 0;
	barrier(progress);

	fill(mine, 5000, 3);
	EXPECT(complete(ucp_am_send_nbx(eps[other], 5, "hello", 5, mine, 500, &none)) == UCS_OK);
	while (!counter)
		progress();
	EXPECT(complete(ucp_stream_send_nbx(eps[other], mine, 5000, &none)) == UCS_OK);
	memset(target, 0, 5000);
	whole = (ucp_request_param_t) { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					.flags = UCP_STREAM_RECV_FLAG_WAITALL };
	{
		void *r = ucp_stream_recv_nbx(eps[other], target, 5000, &len, &whole);

		EXPECT(complete(r) == UCS_OK && filled(target, 5000, 3));
	}
	for (i = 0; i < 2; i++) {
		ucp_rkey_destroy(rkey[i]);
		barrier(progress);
		EXPECT(ucp_mem_unmap(context, memh[i]) == UCS_OK);
	}
	stop();
}

/*
 * Allocates memory by UCX, zeros, and takes the peer's: *rkey is the key for that, *theirs where it lies at the peer. Returns
 * this rank's, with its handle in *memh.
 */
static void *allocate(size_t bytes, ucp_mem_h *memh, ucp_rkey_h *rkey, uintptr_t *theirs)
{
	ucp_mem_map_params_t map = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
				     .length = bytes,
				     .flags = UCP_MEM_MAP_ALLOCATE };
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	void *packed;
	size_t len;

	EXPECT(ucp_mem_map(context, &map, memh) == UCS_OK && ucp_mem_query(*memh, &attr) == UCS_OK);
	EXPECT(ucp_rkey_pack(context, *memh, &packed, &len) == UCS_OK && len <= ADDRESS_MAX);
	memset(attr.address, 0, bytes);
	barrier(progress);
	memcpy(shared->address[rank], packed, len);
	memcpy(&shared->flag[2 * rank], &attr.address, sizeof(attr.address));
	ucp_rkey_buffer_release(packed);
	barrier(progress);
	EXPECT(ucp_ep_rkey_unpack(eps[!rank], shared->address[!rank], rkey) == UCS_OK);
	memcpy(theirs, &shared->flag[2 * !rank], sizeof(*theirs));
	barrier(progress);
	return attr.address;
}

/*
 * Memory that UCX has allocated in the region is written and read by the peer alone: its owner makes no progress
 * meanwhile.
 */
static void window(void)
{
	enum { BYTES = 1 << 20 };
	ucp_request_param_t none = { .op_attr_mask = 0 };
	uint8_t *mine = malloc(BYTES), *own;
	uintptr_t theirs;
	size_t len, at;
	ucp_mem_h memh;
	ucp_rkey_h rkey;

	/* Few ranks, so that each has room for it. */
	setenv("FI_IVSHMEM_RANKS", "4", 1);
	setenv("UCX_TLS", "ivshmem,ivshmem_m", 1);
	setenv("UCX_ALLOC_PRIO", "md:ivshmem_m", 1);
	start(UCP_FEATURE_TAG | UCP_FEATURE_RMA, false);
	own = allocate(BYTES, &memh, &rkey, &theirs);
	if (!rank) {
		fill(mine, BYTES, 5);
		for (at = 0; at < BYTES; at += len) {
			len = at < 100000 ? 1 + at % 3000 : 300000;
			len = len < BYTES - at ? len : BYTES - at;
			EXPECT(complete(ucp_put_nbx(eps[1], mine + at, len, theirs + at, rkey, &none)) == UCS_OK);
		}
		EXPECT(complete(ucp_ep_flush_nbx(eps[1], &none)) == UCS_OK);
	}
	barrier(NULL);
	if (rank)
		EXPECT(filled(own, BYTES, 5));
	else {
		memset(mine, 0, BYTES);
		EXPECT(complete(ucp_get_nbx(eps[1], mine, BYTES, theirs, rkey, &none)) == UCS_OK);
		EXPECT(filled(mine, BYTES, 5));
	}
	barrier(NULL);
	ucp_rkey_destroy(rkey);
	barrier(progress);
	EXPECT(ucp_mem_unmap(context, memh) == UCS_OK);
	stop();
}

/* One atomic operation on the peer's memory at addr; fetched: where what it held before goes, NULL: nowhere. */
static void atomic(ucp_atomic_op_t op, size_t bytes, uint64_t value, uint64_t *fetched, uint64_t addr, ucp_rkey_h rkey)
{
	ucp_request_param_t how = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(bytes) };

	if (fetched) {
		how.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
		how.reply_buffer = fetched;
	}
	EXPECT(complete(ucp_atomic_op_nbx(eps[1], op, &value, 1, addr, rkey, &how)) == UCS_OK);
}

/* Atomics on memory in the region, by the peer alone: its owner makes no progress, and adds by itself meanwhile. */
static void window_atomics(void)
{
	enum { ADDS = 100000, AT = 64 };
	static const struct {
		ucp_atomic_op_t op;
		uint64_t value, after; /* what the memory holds then, each after the one before */
		bool fetches_only;
	} ops[] = {
		{ UCP_ATOMIC_OP_ADD, 12, 12, false }, { UCP_ATOMIC_OP_OR, 3, 15, false },
		{ UCP_ATOMIC_OP_AND, 9, 9, false },   { UCP_ATOMIC_OP_XOR, 5, 12, false },
		{ UCP_ATOMIC_OP_SWAP, 77, 77, true }, { UCP_ATOMIC_OP_CSWAP, 77, 5, true },
		{ UCP_ATOMIC_OP_CSWAP, 78, 5, true },
	};
	ucp_request_param_t none = { .op_attr_mask = 0 };
	uint64_t was, before[2], *mine;
	size_t bytes, n;
	uintptr_t theirs;
	ucp_mem_h memh;
	ucp_rkey_h rkey;
	int fetch;

	setenv("FI_IVSHMEM_RANKS", "4", 1);
	setenv("UCX_TLS", "ivshmem,ivshmem_m", 1);
	setenv("UCX_ALLOC_PRIO", "md:ivshmem_m", 1);
	start(UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64, false);
	mine = allocate(4096, &memh, &rkey, &theirs);
	for (n = 0; n < ADDS; n++)
		if (rank)
			__atomic_fetch_add(mine, 1, __ATOMIC_RELAXED);
		else
			atomic(UCP_ATOMIC_OP_ADD, 8, 1, NULL, theirs, rkey);
	for (bytes = 4; !rank && bytes <= 8; bytes += 4)
		for (fetch = 0; fetch < 2; fetch++)
			for (was = n = 0; n < sizeof(ops) / sizeof(ops[0]); n++) {
				uint64_t at = theirs + AT * (bytes + (size_t) fetch), now = 0;

				if (!fetch && ops[n].fetches_only)
					continue;
				before[0] = 5; /* what CSWAP puts there */
				before[1] = 0;
				atomic(ops[n].op, bytes, ops[n].value, fetch ? before : NULL, at, rkey);
				EXPECT(complete(ucp_ep_flush_nbx(eps[1], &none)) == UCS_OK);
				EXPECT(!fetch || !memcmp(before, &was, bytes));
				EXPECT(complete(ucp_get_nbx(eps[1], &now, 8, at, rkey, &none)) == UCS_OK);
				EXPECT(now == ops[n].after);
				was = now;
			}
	if (!rank)
		EXPECT(complete(ucp_ep_flush_nbx(eps[1], &none)) == UCS_OK);
	barrier(NULL);
	EXPECT(!rank || *mine == 2 * ADDS);
	barrier(NULL);
	ucp_rkey_destroy(rkey);
	barrier(progress);
	EXPECT(ucp_mem_unmap(context, memh) == UCS_OK);
	stop();
}

static bool has_window(void);

/* Memory for which the region has no room, and that of before the first worker: it is none of the region's, and reached. */
static void no_room(void)
{
	enum { BYTES = 3 << 20 };
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA };
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = BYTES,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_request_param_t none = { .op_attr_mask = 0 };
	uint8_t *mine = malloc(BYTES), *own;
	uintptr_t theirs;
	ucp_context_h early;
	ucp_config_t *config;
	ucp_mem_h memh;
	ucp_rkey_h rkey;
	int other = !rank;

	setenv("FI_IVSHMEM_RANKS", "32", 1);
	setenv("UCX_TLS", "ivshmem,ivshmem_m", 1);
	/* No other way than the region. A version without the domain passes over it, in the list that is set by default. */
	setenv("UCX_ALLOC_PRIO",
	       has_window() ? "md:ivshmem_m" : "md:ivshmem_m,md:sysv,md:posix,huge,thp,md:*,mmap,heap", 1);
	EXPECT(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	EXPECT(ucp_init(&params, config, &early) == UCS_OK);
	ucp_config_release(config);
	EXPECT(ucp_mem_map(early, &map, &memh) == UCS_OK && ucp_mem_unmap(early, memh) == UCS_OK);
	ucp_cleanup(early);
	start(UCP_FEATURE_RMA, false);
	own = allocate(BYTES, &memh, &rkey, &theirs);
	fill(mine, BYTES, (uint32_t) rank);
	EXPECT(complete(ucp_put_nbx(eps[other], mine, BYTES, theirs, rkey, &none)) == UCS_OK);
	EXPECT(complete(ucp_ep_flush_nbx(eps[other], &none)) == UCS_OK);
	barrier(progress);
	EXPECT(filled(own, BYTES, (uint32_t) other));
	memset(mine, 0, BYTES);
	EXPECT(complete(ucp_get_nbx(eps[other], mine, BYTES, theirs, rkey, &none)) == UCS_OK);
	EXPECT(filled(mine, BYTES, (uint32_t) rank));
	barrier(progress);
	ucp_rkey_destroy(rkey);
	EXPECT(ucp_mem_unmap(context, memh) == UCS_OK);
	free(mine);
	stop();
}

/* A rank is killed: what the other sends it ends with an error, and UCX reports it. */
static void death(void)
{
	static uint8_t data[1 << 20];
	void *request;
	int n;

	start(UCP_FEATURE_TAG, true);
	if (rank) {
		EXPECT(complete(receive_tag(data, 8, 1)) == UCS_OK);
		raise(SIGKILL);
	}
	EXPECT(complete(send_tag(1, data, 8, 1)) == UCS_OK);
	for (n = 0; !failures; n++) {
		request = send_tag(1, data, n % 2 ? 20000 : 8, 2);
		if (UCS_PTR_IS_PTR(request))
			complete(request);
		progress();
	}
	/* The worker goes on. */
	EXPECT(ucp_worker_progress(worker) == 0 || true);
	_exit(0);
}

/* A rank sleeps until something comes. */
static void wakeup(void)
{
	uint8_t data[16] = { 0 };
	void *request;
	int n;

	start(UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, false);
	for (n = 0; n < 20; n++) {
		if (!rank) {
			usleep(n % 5 * 1000);
			EXPECT(complete(send_tag(1, data, sizeof(data), 1)) == UCS_OK);
			EXPECT(complete(receive_tag(data, sizeof(data), 2)) == UCS_OK);
			continue;
		}
		request = receive_tag(data, sizeof(data), 1);
		while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
			if (!ucp_worker_progress(worker))
				EXPECT(ucp_worker_wait(worker) == UCS_OK);
		EXPECT(complete(request) == UCS_OK);
		EXPECT(complete(send_tag(0, data, sizeof(data), 2)) == UCS_OK);
	}
	stop();
}

/* A child of a rank's touches nothing of it, and ends as programs do. */
static void forks(void)
{
	uint8_t data[4000];
	int n, status;
	pid_t pid;

	start(UCP_FEATURE_TAG, false);
	for (n = 0; n < 10; n++) {
		if (!rank) {
			fill(data, sizeof(data), (uint32_t) n);
			EXPECT(complete(send_tag(1, data, sizeof(data), (uint64_t) n)) == UCS_OK);
		} else {
			EXPECT(complete(receive_tag(data, sizeof(data), (uint64_t) n)) == UCS_OK);
			EXPECT(filled(data, sizeof(data), (uint32_t) n));
		}
		pid = fork();
		EXPECT(pid >= 0);
		/* It calls nothing of UCX's, whose locks may be held: it ends as any program does. */
		if (!pid)
			exit(0);
		EXPECT(waitpid(pid, &status, 0) == pid && !status);
	}
	stop();
}

/* A receive that is cancelled takes nothing, and an endpoint is closed at once with messages on their way. */
static void cancels(void)
{
	enum { COUNT = 2000 };
	static uint8_t data[20000];
	ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE };
	void *request, *sent[COUNT];
	int n;

	start(UCP_FEATURE_TAG, true);
	if (rank) {
		for (n = 0; n < 100; n++) {
			uint8_t kept[8] = { 1 };

			request = receive_tag(kept, sizeof(kept), 7);
			EXPECT(UCS_PTR_IS_PTR(request));
			ucp_request_cancel(worker, request);
			EXPECT(complete(request) == UCS_ERR_CANCELED && kept[0] == 1);
		}
		barrier(progress);
		fill(data, sizeof(data), 9);
		EXPECT(complete(receive_tag(data, sizeof(data), 7)) == UCS_OK && filled(data, sizeof(data), 5));
		barrier(progress);
	} else {
		barrier(progress);
		fill(data, sizeof(data), 5);
		EXPECT(complete(send_tag(1, data, sizeof(data), 7)) == UCS_OK);
		barrier(progress);
		for (n = 0; n < COUNT; n++)
			sent[n] = send_tag(1, data, sizeof(data), 8);
		request = ucp_ep_close_nbx(eps[1], &force);
		for (n = 0; n < COUNT; n++) {
			ucs_status_t status = complete(sent[n]);

			EXPECT(status == UCS_OK || status == UCS_ERR_CANCELED);
		}
		EXPECT(complete(request) == UCS_OK);
		eps[1] = NULL;
	}
	/* The other one still reads what came, or learns that no more does. UCX would warn of what nobody received. */
	barrier(progress);
	if (rank)
		_exit(0);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

/* The workers of a process, each with a thread, and the peer's with the same number. */
enum { WORKERS = 3, ROUNDS = 300 };
static pthread_barrier_t workers_ready;

static void *work(void *arg)
{
	ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_request_param_t none = { .op_attr_mask = 0 };
	int n, at = (int) (intptr_t) arg;
	uint8_t *out = malloc(200000), *in = malloc(200000);
	ucp_address_t *address;
	void *requests[2];
	ucp_worker_h w;
	ucp_ep_h ep;
	size_t len;

	EXPECT(ucp_worker_create(context, &params, &w) == UCS_OK);
	EXPECT(ucp_worker_get_address(w, &address, &len) == UCS_OK && len <= ADDRESS_MAX / WORKERS);
	memcpy(shared->address[rank] + at * (ADDRESS_MAX / WORKERS), address, len);
	ucp_worker_release_address(w, address);
	if (pthread_barrier_wait(&workers_ready) == PTHREAD_BARRIER_SERIAL_THREAD)
		barrier(NULL);
	pthread_barrier_wait(&workers_ready);
	{
		ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				      .address = (void *) (shared->address[!rank] + at * (ADDRESS_MAX / WORKERS)) };

		EXPECT(ucp_ep_create(w, &p, &ep) == UCS_OK);
	}
	for (n = 0; n < ROUNDS; n++) {
		uint32_t mine = (uint32_t) (at * 100000 + rank * 10000 + n);
		uint32_t theirs = (uint32_t) (at * 100000 + !rank * 10000 + n);
		int i;

		len = n % 10 ? 4000 + (size_t) n * 7919 % 26000 : 200000;
		fill(out, len, mine);
		requests[0] = ucp_tag_recv_nbx(w, in, len, (uint64_t) n, UINT64_MAX, &none);
		requests[1] = ucp_tag_send_nbx(ep, out, len, (uint64_t) n, &none);
		for (i = 0; i < 2; i++) {
			while (UCS_PTR_IS_PTR(requests[i]) && ucp_request_check_status(requests[i]) == UCS_INPROGRESS)
				if (!ucp_worker_progress(w))
					sched_yield();
			EXPECT(!UCS_PTR_IS_ERR(requests[i]));
			if (UCS_PTR_IS_PTR(requests[i])) {
				EXPECT(ucp_request_check_status(requests[i]) == UCS_OK);
				ucp_request_free(requests[i]);
			}
		}
		EXPECT(filled(in, len, theirs));
	}
	/* What is still to be said to the peer's worker is: nobody leaves before. */
	requests[0] = ucp_worker_flush_nbx(w, &none);
	while (UCS_PTR_IS_PTR(requests[0]) && ucp_request_check_status(requests[0]) == UCS_INPROGRESS)
		ucp_worker_progress(w);
	if (UCS_PTR_IS_PTR(requests[0]))
		ucp_request_free(requests[0]);
	__atomic_add_fetch(&shared->flag[at], 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&shared->flag[at], __ATOMIC_ACQUIRE) < 2)
		if (!ucp_worker_progress(w))
			sched_yield();
	ucp_worker_destroy(w);
	free(out);
	free(in);
	return NULL;
}

/* Several workers of one context, each in a thread of its own. */
static void threads(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
				.features = UCP_FEATURE_TAG,
				.mt_workers_shared = 1 };
	pthread_t thread[WORKERS];
	ucp_config_t *config;
	int i;

	/* Unasked for, but for those of 200,000 bytes. */
	setenv("UCX_RNDV_THRESH", "32k", 1);
	EXPECT(ucp_config_read(NULL, NULL, &config) == UCS_OK);
	EXPECT(ucp_init(&params, config, &context) == UCS_OK);
	ucp_config_release(config);
	EXPECT(!pthread_barrier_init(&workers_ready, NULL, WORKERS));
	for (i = 0; i < WORKERS; i++)
		EXPECT(!pthread_create(&thread[i], NULL, work, (void *) (intptr_t) i));
	for (i = 0; i < WORKERS; i++)
		EXPECT(!pthread_join(thread[i], NULL));
	ucp_cleanup(context);
}

/* The ranks of a job that is suspended for longer than a rank may be silent find each other alive afterwards. */
static void suspended(void)
{
	static uint8_t data[32768];
	pid_t child = 0;
	int n;

	setenv("FI_IVSHMEM_TIMEOUT", "1000", 1);
	shared->flag[rank] = (uint32_t) getpid();
	barrier(NULL);
	if (!rank) {
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			while (!__atomic_load_n(&shared->flag[2], __ATOMIC_ACQUIRE))
				usleep(1000);
			for (n = 0; n < 2; n++)
				kill((pid_t) shared->flag[n], SIGSTOP);
			usleep(1600000);
			for (n = 1; n >= 0; n--)
				kill((pid_t) shared->flag[n], SIGCONT);
			_exit(0);
		}
	}
	start(UCP_FEATURE_TAG, true);
	for (n = 0; n < 100 || !__atomic_load_n(&shared->flag[3], __ATOMIC_ACQUIRE); n++) {
		size_t len = n % 2 ? sizeof(data) : 8;

		if (!rank) {
			if (n == 50)
				__atomic_store_n(&shared->flag[2], 1, __ATOMIC_RELEASE);
			if (n >= 50 && child && waitpid(child, NULL, WNOHANG) == child) {
				child = 0;
				__atomic_store_n(&shared->flag[3], (uint32_t) n + 200, __ATOMIC_RELEASE);
			}
			fill(data, len, (uint32_t) n);
			EXPECT(complete(send_tag(1, data, len, 1)) == UCS_OK);
			EXPECT(complete(receive_tag(data, 8, 2)) == UCS_OK);
		} else {
			EXPECT(complete(receive_tag(data, len, 1)) == UCS_OK && filled(data, len, (uint32_t) n));
			EXPECT(complete(send_tag(0, data, 8, 2)) == UCS_OK);
		}
		if (shared->flag[3] && (uint32_t) n >= shared->flag[3])
			break;
	}
	EXPECT(!failures);
	stop();
}

/* Ranks in containers, which share neither the network nor IPC, reach each other without being asked to. */
static void containers(void)
{
	int kind = CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS;

	if (unshare(kind) && unshare(CLONE_NEWUSER | kind)) {
		if (!rank)
			printf("not permitted here: ");
		return;
	}
	unsetenv("NEARMETAL_UCX_NEAR");
	messages();
}

/* Where there is a network, too, nothing between two ranks goes over it: not a part of a rendezvous either. */
static void lanes(void)
{
	char *text = NULL;
	size_t len;
	FILE *f;

	setenv("UCX_TLS", "ivshmem,tcp,self", 1);
	start(UCP_FEATURE_TAG | UCP_FEATURE_RMA, false);
	f = open_memstream(&text, &len);
	ucp_ep_print_info(eps[!rank], f);
	EXPECT(!fclose(f) && strstr(text, "ivshmem/ivshmem0"));
	EXPECT(!strstr(text, "tcp/"));
	free(text);
	stop();
}

/* In a process that has loaded the provider, UCX takes no slot unless Open MPI is to take UCX. */
static void beside_provider(void)
{
	ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	char path[4096];
	ucp_ep_h ep;

	EXPECT(getenv("LD_PRELOAD"));
	snprintf(path, sizeof(path), "%s", getenv("LD_PRELOAD"));
	EXPECT(strrchr(path, '/') && strlen(path) + 64 < sizeof(path));
	strcpy(strrchr(path, '/'), "/../fabric/libivshmem-fi.so");
	EXPECT(dlopen(path, RTLD_NOW | RTLD_LOCAL));
	setenv("UCX_TLS", "ivshmem,self", 1);
	setenv("OMPI_MCA_pml", "ucx", 1);
	start(UCP_FEATURE_TAG, false);
	stop();
	eps[!rank] = NULL;
	barrier(NULL);
	unsetenv("OMPI_MCA_pml");
	{
		ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
		ucp_worker_params_t none = { .field_mask = 0 };
		ucp_address_t *address;
		size_t len;

		EXPECT(ucp_init(&params, NULL, &context) == UCS_OK);
		EXPECT(ucp_worker_create(context, &none, &worker) == UCS_OK);
		EXPECT(ucp_worker_get_address(worker, &address, &len) == UCS_OK && len <= ADDRESS_MAX);
		memcpy(shared->address[rank], address, len);
		ucp_worker_release_address(worker, address);
		barrier(NULL);
		p.address = (const ucp_address_t *) shared->address[!rank];
		EXPECT(ucp_ep_create(worker, &p, &ep) == UCS_ERR_UNREACHABLE);
		barrier(NULL);
		ucp_worker_destroy(worker);
		ucp_cleanup(context);
	}
}

/* To itself, where its messages go by the transport self: what is written is there when they say so. */
static void itself(void)
{
	enum { LARGE = 100000, COUNT = 50 };
	static uint8_t out[LARGE], in[LARGE];
	ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_request_param_t none = { .op_attr_mask = 0 };
	uint32_t i;

	setenv("UCX_TLS", "ivshmem,self", 1);
	start(UCP_FEATURE_TAG, false);
	p.address = (const ucp_address_t *) shared->address[rank];
	EXPECT(ucp_ep_create(worker, &p, &eps[rank]) == UCS_OK);
	for (i = 0; i < COUNT; i++) {
		size_t len = i % 2 ? LARGE : LARGE / 5;
		void *receive, *sent;

		fill(out, len, i);
		receive = receive_tag(in, len, i);
		sent = send_tag(rank, out, len, i);
		EXPECT(complete(receive) == UCS_OK && filled(in, len, i));
		EXPECT(complete(sent) == UCS_OK);
	}
	EXPECT(complete(ucp_ep_flush_nbx(eps[rank], &none)) == UCS_OK);
	stop();
}

/* Messages of many pieces, which take several of the transport's and no rendezvous. */
static void pieces(void)
{
	enum { PIECES = 40, LONGEST = 20000, COUNT = 30 };
	static uint8_t out[PIECES * LONGEST], in[PIECES * LONGEST];
	ucp_request_param_t how = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov() };
	ucp_dt_iov_t iov[PIECES];
	uint32_t n, i;
	size_t len;
	void *sent, *receive;

	setenv("UCX_RNDV_THRESH", "inf", 1);
	setenv("UCX_ZCOPY_THRESH", "1", 1);
	start(UCP_FEATURE_TAG, false);
	for (n = 0; n < COUNT; n++) {
		for (i = 0, len = 0; i < PIECES; len += iov[i++].length) {
			iov[i].buffer = out + len;
			iov[i].length = n % 2 ? LONGEST - 7 * n : i * n;
		}
		fill(out, len, n + (uint32_t) rank);
		receive = receive_tag(in, len, n);
		sent = n % 3 ? ucp_tag_send_nbx(eps[!rank], iov, PIECES, n, &how) : send_tag(!rank, out, len, n);
		EXPECT(complete(receive) == UCS_OK && filled(in, len, n + (uint32_t) !rank));
		EXPECT(complete(sent) == UCS_OK);
	}
	stop();
}

/* Does the transport for memory of the region belong to this version of UCX? */
static bool has_window(void)
{
	unsigned int major, minor, release;

	ucp_get_version(&major, &minor, &release);
	return HAS_WINDOW(minor);
}

/* Is a test asked for? All are, if none is named. */
static bool asked(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int ranks;
		size_t mib;
		void (*fn)(void);
		bool may_die;
	} tests[] = {
		{ "messages", 3, 64, messages, false },
		{ "messages in a small region", 2, 4, messages, false },
		{ "rows", 2, 64, rows, false },
		{ "flood", 2, 16, flood, false },
		{ "pieces", 2, 64, pieces, false },
		{ "others", 2, 64, others, false },
		{ "window", 2, 64, window, false },
		{ "atomics", 2, 64, window_atomics, false },
		{ "no room", 2, 64, no_room, false },
		{ "death", 2, 64, death, true },
		{ "wakeup", 2, 64, wakeup, false },
		{ "forks", 2, 64, forks, false },
		{ "cancels", 2, 64, cancels, false },
		{ "threads", 2, 64, threads, false },
		{ "a job that is suspended", 2, 64, suspended, false },
		{ "containers", 2, 64, containers, false },
		{ "network", 2, 64, lanes, false },
		{ "itself", 1, 64, itself, false },
		{ "beside the provider", 2, 64, beside_provider, false },
	};
	size_t i;

	setenv("NEARMETAL_UCX_NEAR", "1", 1);
	/* Only this transport: what it does not carry does not come. */
	setenv("UCX_TLS", "ivshmem", 0);
	setenv("FI_IVSHMEM_TIMEOUT", "2000", 0);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (asked(argc, argv, tests[i].name) &&
		    (has_window() || (tests[i].fn != window && tests[i].fn != window_atomics)))
			run(tests[i].name, tests[i].ranks, tests[i].mib, tests[i].fn, tests[i].may_die);
	return 0;
}
