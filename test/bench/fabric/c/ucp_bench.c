/*
 * ucp_bench: what two processes on two cores reach at the level of UCX (ucp), over the transports in UCX_TLS.
 *
 *	ucp_bench messages		tagged messages: latency, rate, bandwidth (twoway.h)
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

#define ADDRESS_MAX	512
#define CROWD_MAX	1022

struct common {
	_Alignas(64) uint32_t	arrived[2];
	_Alignas(64) uint32_t	stage;
	_Alignas(64) long	word;
	size_t			len[2 + CROWD_MAX];
	uint8_t			address[2 + CROWD_MAX][ADDRESS_MAX];
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

static void open_context(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
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

static void start(void)
{
	open_context();
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
	start();
	/* Connections are made before real-time priority would starve what else makes them. */
	tw_pingpongs(out, in, 8, 100);
	meter_realtime();
	tw_all(out, in);
	meter_normal();
	meet();
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
	open_context();
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
	start();
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

	open_context();
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
	if (!(argc == 2 && !strcmp(what, "messages")) &&
	    !(argc == 3 && !strcmp(what, "idle") && count > 0 && count <= CROWD_MAX)) {
		fprintf(stderr, "usage: ucp_bench messages | idle N | memory N | region FILE MIB\n");
		return 2;
	}
	rank = meter_ranks(&child);
	if (rank < 0)
		die("fork", strerror(errno));
	meter_pin(rank);
	alarm(meter_yields ? 600 : 80);
	if (!strcmp(what, "messages"))
		messages();
	else
		idle(count);
	fflush(stdout);
	/* Of workers in real time one may be gone before the other: nothing is closed. */
	if (!child)
		_exit(0);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
