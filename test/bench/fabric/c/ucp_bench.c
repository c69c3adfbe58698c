/*
 * ucp_bench: what two processes on two cores reach at the level of UCX (ucp), over the transports in UCX_TLS.
 *
 *	ucp_bench messages		tagged messages: latency, rate, bandwidth (twoway.h)
 *	ucp_bench window		put and get of a peer's memory in the region, and memcpy to and from the same memory
 *	ucp_bench idle N		8 B latency alone, and with N idle peers
 *	ucp_bench memory N		memory of a worker at rest in KiB, the mean of N
 *	ucp_bench region FILE MIB	makes a region, as nearmetal does, in a file without holes filled
 *
 * One line a figure: NAME BYTES VALUE.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include <nearmetal/region.h>

#include "meter.h"

#define ADDRESS_MAX 512
#define CROWD_MAX   1022

struct common {
	_Alignas(64) uint32_t arrived[2];
	_Alignas(64) uint32_t stage;
	_Alignas(64) long word;
	uint64_t target; /* rank 1's memory in the region, */
	uint64_t offset; /* and where it is in the region, bytes */
	size_t key_len;
	uint8_t key[ADDRESS_MAX];
	size_t len[2 + CROWD_MAX];
	uint8_t address[2 + CROWD_MAX][ADDRESS_MAX];
};

static struct common *common;
static int rank;
static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;
static const ucp_request_param_t plain;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "ucp_bench: %s: %s\n", what, why);
	exit(1);
}

static void check(const char *what, ucs_status_t status)
{
	if (status != UCS_OK)
		die(what, ucs_status_string(status));
}

static void open_context(uint64_t features)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = features };
	ucp_config_t *config;

	check("ucp_config_read", ucp_config_read(NULL, NULL, &config));
	check("ucp_init", ucp_init(&params, config, &context));
	ucp_config_release(config);
}

static ucp_worker_h open_worker(int at)
{
	ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				       .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_address_t *address;
	ucp_worker_h w;
	size_t len;

	check("ucp_worker_create", ucp_worker_create(context, &params, &w));
	check("ucp_worker_get_address", ucp_worker_get_address(w, &address, &len));
	if (len > ADDRESS_MAX)
		die("ucp_worker_get_address", "the address is too long");
	memcpy(common->address[at], address, len);
	common->len[at] = len;
	ucp_worker_release_address(w, address);
	return w;
}

static ucp_ep_h connect_to(ucp_worker_h w, int at)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				   .address = (const ucp_address_t *) common->address[at] };
	ucp_ep_h ep;

	check("ucp_ep_create", ucp_ep_create(w, &params, &ep));
	return ep;
}

static inline void progress(ucp_worker_h w)
{
	if (!ucp_worker_progress(w))
		meter_idle();
}

static void meet(void)
{
	__atomic_add_fetch(&common->arrived[rank], 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&common->arrived[!rank], __ATOMIC_ACQUIRE) <
	       __atomic_load_n(&common->arrived[rank], __ATOMIC_RELAXED))
		progress(worker);
}

static inline void finish(ucp_worker_h w, void *request)
{
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(request)) {
		check("a message", UCS_PTR_STATUS(request));
		return;
	}
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		progress(w);
	check("a message", status);
	ucp_request_free(request);
}

static void tw_send(const void *buf, size_t len)
{
	finish(worker, ucp_tag_send_nbx(peer, buf, len, 1, &plain));
}

static void tw_recv(void *buf, size_t len)
{
	finish(worker, ucp_tag_recv_nbx(worker, buf, len, 1, UINT64_MAX, &plain));
}

static void tw_send_window(const void *buf, size_t len, int count)
{
	void *requests[METER_WINDOW];

	for (int i = 0; i < count; i++)
		requests[i] = ucp_tag_send_nbx(peer, buf, len, 1, &plain);
	for (int i = 0; i < count; i++)
		finish(worker, requests[i]);
}

static void tw_recv_window(void *buf, size_t len, int count)
{
	void *requests[METER_WINDOW];

	for (int i = 0; i < count; i++)
		requests[i] = ucp_tag_recv_nbx(worker, buf, len, 1, UINT64_MAX, &plain);
	for (int i = 0; i < count; i++)
		finish(worker, requests[i]);
}

static void tw_meet(void)
{
	meet();
}

static long tw_agree(long value)
{
	if (rank == 0)
		common->word = value;
	meet();
	return common->word;
}

#include "twoway.h"

static void start(uint64_t features)
{
	open_context(features);
	worker = open_worker(rank);
	meet();
	peer = connect_to(worker, !rank);
}

static void messages(void)
{
	uint8_t *out = aligned_alloc(4096, METER_LARGEST + 4096), *in = aligned_alloc(4096, METER_LARGEST + 4096);

	if (!out || !in)
		die("memory", strerror(ENOMEM));
	memset(out, 1, METER_LARGEST + 4096);
	memset(in, 2, METER_LARGEST + 4096);
	start(UCP_FEATURE_TAG);
	/* Connections are made before real-time priority would starve what else makes them. */
	tw_pingpongs(out, in, 8, 100);
	meter_realtime();
	tw_all(out, in);
	meter_normal();
	meet();
}

enum way { PUT, GET, COPY_THERE, COPY_BACK };

/* Where the k'th piece of len bytes lies: all over the memory, as in a window of an MPI. The least stay where they are. */
static size_t place(size_t len, long k)
{
	return len <= 8 ? 0 : (size_t) k * len & (METER_LARGEST - 1);
}

/* Where this process has mapped the region that holds this memory of it. */
static uint8_t *region_of(const void *memory)
{
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t start, end, offset, at = (uintptr_t) memory;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && at >= start && at < end) {
			fclose(f);
			return (uint8_t *) (start - offset);
		}
	die("/proc/self/maps", "the region is not in it");
}

/* Time in us of a piece of len bytes, with all done at the end: own is memory, mapped the target as it is mapped here. */
static double pieces(enum way way, uint8_t *own, uint8_t *mapped, ucp_rkey_h rkey, size_t len, long count)
{
	double t = meter_now();

	for (long k = 0; k < count; k++) {
		size_t at = place(len, k);

		if (way == PUT)
			finish(worker, ucp_put_nbx(peer, own + at, len, common->target + at, rkey, &plain));
		else if (way == GET)
			finish(worker, ucp_get_nbx(peer, own + at, len, common->target + at, rkey, &plain));
		else if (way == COPY_THERE)
			memcpy(mapped + at, own + at, len);
		else
			memcpy(own + at, mapped + at, len);
		__asm__ volatile("" ::: "memory");
	}
	if (way == PUT)
		finish(worker, ucp_ep_flush_nbx(peer, &plain));
	return (meter_now() - t) / (double) count;
}

/* UCX's way and memcpy in turns, so that both see the same machine. */
static void beside_memcpy(const char *name, enum way ucx, enum way copy, uint8_t *own, uint8_t *mapped, ucp_rkey_h rkey,
			  size_t len)
{
	double u[METER_SLICES], c[METER_SLICES];
	long count = meter_count(pieces(ucx, own, mapped, rkey, len, 10), 10, 3000, 1);
	char what[32];

	pieces(copy, own, mapped, rkey, len, 10);
	for (int s = 0; s < METER_SLICES; s++) {
		u[s] = pieces(ucx, own, mapped, rkey, len, count);
		c[s] = pieces(copy, own, mapped, rkey, len, count);
	}
	if (len <= 8) {
		meter_print(name, len, meter_median(u, METER_SLICES));
		return;
	}
	snprintf(what, sizeof(what), "%s-bandwidth", name);
	meter_print(what, len, (double) len / meter_median(u, METER_SLICES) / 1e3);
	snprintf(what, sizeof(what), "%s-memcpy", name);
	meter_print(what, len, (double) len / meter_median(c, METER_SLICES) / 1e3);
}

static void pause_until(uint32_t stage)
{
	while (__atomic_load_n(&common->stage, __ATOMIC_ACQUIRE) < stage)
		usleep(1000);
}

/* One process with count workers, each of which exchanges a message with both ranks. */
static void crowd(int count)
{
	static ucp_worker_h workers[CROWD_MAX];
	static ucp_ep_h eps[CROWD_MAX][2];
	uint8_t hello[8] = { 0 };

	pause_until(1);
	open_context(UCP_FEATURE_TAG);
	for (int i = 0; i < count; i++) {
		workers[i] = open_worker(2 + i);
		for (int r = 0; r < 2; r++) {
			eps[i][r] = connect_to(workers[i], r);
			finish(workers[i], ucp_tag_send_nbx(eps[i][r], hello, 8, 2, &plain));
		}
	}
	__atomic_store_n(&common->stage, 2, __ATOMIC_RELEASE);
	while (__atomic_load_n(&common->stage, __ATOMIC_ACQUIRE) < 3) {
		for (int i = 0; i < count; i++)
			ucp_worker_progress(workers[i]);
	}
	pause_until(4);
	_exit(0);
}

/*
 * Half a round trip of 8 B in us, of 200 slices the tenth: what other work on the machine adds is left out. The median of
 * a few slices moved by more than idle peers cost.
 */
static void undisturbed(const char *what, uint8_t *out, uint8_t *in)
{
	enum { SLICES = 200, TURNS = 2000 };
	double t, low[10] = { 0 }, each;
	int n, k;

	for (n = 0; n < SLICES; n++) {
		t = meter_now();
		tw_pingpongs(out, in, 8, TURNS);
		each = (meter_now() - t) / TURNS / 2;
		/* The ten least so far, in order. */
		for (k = n < 10 ? n : 10; k && low[k - 1] > each; k--)
			if (k < 10)
				low[k] = low[k - 1];
		if (k < 10)
			low[k] = each;
	}
	if (rank == 0)
		meter_print(what, 8, low[9]);
}

static void idle(int count)
{
	uint8_t out[64] = { 0 }, in[64];
	pid_t child = 0, parent = getpid();

	if (rank == 0) {
		child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			crowd(count);
		}
	}
	start(UCP_FEATURE_TAG);
	tw_pingpongs(out, in, 8, 100);
	meter_realtime();
	undisturbed("latency-alone", out, in);
	meter_normal();
	if (rank == 0)
		__atomic_store_n(&common->stage, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < count; i++)
		finish(worker, ucp_tag_recv_nbx(worker, in, sizeof(in), 2, UINT64_MAX, &plain));
	pause_until(2);
	meet();
	if (rank == 0)
		__atomic_store_n(&common->stage, 3, __ATOMIC_RELEASE);
	meet();
	/* What UCX itself still says to new peers is over. */
	for (int i = 0; i < 100000; i++)
		ucp_worker_progress(worker);
	tw_pingpongs(out, in, 8, 1000);
	meter_realtime();
	undisturbed("latency-crowd", out, in);
	meter_normal();
	meet();
	if (rank == 0) {
		__atomic_store_n(&common->stage, 4, __ATOMIC_RELEASE);
		waitpid(child, NULL, 0);
	}
}

/* Rank 0 writes and reads memory of rank 1's in the region, which sleeps meanwhile. */
static void window(void)
{
	ucp_mem_map_params_t map = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
				     .length = METER_LARGEST,
				     .flags = UCP_MEM_MAP_ALLOCATE };
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	uint8_t *own = aligned_alloc(4096, METER_LARGEST), hello[8] = { 0 };
	uint8_t *mapped;
	ucp_rkey_h rkey;
	ucp_mem_h memh;
	void *packed;

	if (!own)
		die("memory", strerror(ENOMEM));
	memset(own, 1, METER_LARGEST);
	start(UCP_FEATURE_TAG | UCP_FEATURE_RMA);
	tw_pingpongs(hello, hello, 8, 100);
	check("ucp_mem_map", ucp_mem_map(context, &map, &memh));
	check("ucp_mem_query", ucp_mem_query(memh, &attr));
	memset(attr.address, 2, METER_LARGEST);
	if (rank == 1) {
		check("ucp_rkey_pack", ucp_rkey_pack(context, memh, &packed, &common->key_len));
		if (common->key_len > ADDRESS_MAX)
			die("ucp_rkey_pack", "the key is too long");
		memcpy(common->key, packed, common->key_len);
		ucp_rkey_buffer_release(packed);
		common->target = (uintptr_t) attr.address;
		common->offset = (uint64_t) ((uint8_t *) attr.address - region_of(attr.address));
	}
	meet();
	if (rank == 1) {
		pause_until(1);
	} else {
		check("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(peer, common->key, &rkey));
		mapped = region_of(attr.address) + common->offset;
		meter_realtime();
		beside_memcpy("put", PUT, COPY_THERE, own, mapped, rkey, 8);
		beside_memcpy("get", GET, COPY_BACK, own, mapped, rkey, 8);
		for (int i = 0; i < meter_bandwidth_count; i++) {
			beside_memcpy("put", PUT, COPY_THERE, own, mapped, rkey, meter_bandwidth_sizes[i]);
			beside_memcpy("get", GET, COPY_BACK, own, mapped, rkey, meter_bandwidth_sizes[i]);
		}
		meter_normal();
		ucp_rkey_destroy(rkey);
		__atomic_store_n(&common->stage, 1, __ATOMIC_RELEASE);
	}
	meet();
}

/* Resident memory of this process in KiB, what it shares included. */
static long resident(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void memory(int count)
{
	long before;

	open_context(UCP_FEATURE_TAG);
	open_worker(0); /* what the first one makes for all */
	before = resident();
	for (int i = 0; i < count; i++)
		open_worker(0);
	meter_print("worker", 0, (double) (resident() - before) / count);
}

static int region(const char *path, size_t mib)
{
	struct nm_region_header h = { .version = NM_REGION_VERSION, .header_bytes = NM_REGION_HEADER_BYTES };
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	memcpy(h.magic, NM_REGION_MAGIC, sizeof(h.magic));
	h.size_bytes = (uint64_t) mib << 20;
	h.scratch_offset = h.layout_offset = NM_REGION_HEADER_BYTES;
	h.layout_bytes = h.size_bytes - NM_REGION_HEADER_BYTES;
	if (fd < 0 || getrandom(h.key, sizeof(h.key), 0) != sizeof(h.key))
		die(path, strerror(errno));
	h.crc = nm_region_crc32c(&h, offsetof(struct nm_region_header, crc));
	if (ftruncate(fd, (off_t) h.size_bytes) || pwrite(fd, &h, sizeof(h), 0) != sizeof(h))
		die(path, strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int status, count = argc > 2 ? atoi(argv[2]) : 0;
	pid_t child;

	if (argc == 4 && !strcmp(what, "region") && atoi(argv[3]) > 0)
		return region(argv[2], (size_t) atoi(argv[3]));
	common = meter_shared(sizeof(*common));
	if (!common)
		die("the memory of both ranks", strerror(errno));
	if (argc == 3 && !strcmp(what, "memory") && count > 0) {
		memory(count);
		return 0;
	}
	if (!(argc == 2 && (!strcmp(what, "messages") || !strcmp(what, "window"))) &&
	    !(argc == 3 && !strcmp(what, "idle") && count > 0 && count <= CROWD_MAX)) {
		fprintf(stderr, "usage: ucp_bench messages | window | idle N | memory N | region FILE MIB\n");
		return 2;
	}
	rank = meter_ranks(&child);
	if (rank < 0)
		die("fork", strerror(errno));
	meter_pin(rank);
	alarm(meter_yields ? 600 : 80);
	if (!strcmp(what, "messages"))
		messages();
	else if (!strcmp(what, "window"))
		window();
	else
		idle(count);
	fflush(stdout);
	/* Of workers in real time one may be gone before the other: nothing is closed. */
	if (!child)
		_exit(0);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
