/*
 * The transport by UCX's interface uct: two ranks whose messages cross a third process that writes random words over
 * all that it can reach in the region, as a VM that was taken over would. What they receive may be spoiled or end.
 * They must not crash, nor write outside of what they registered. Of the headers only calls through the interface's
 * table are used in line, which all versions have alike.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <nearmetal/layout.h>
#include <nearmetal/region.h>

#include "harness.h"

static uct_component_h component;
static uct_md_h md;
static ucs_async_context_t *async;
static uct_worker_h worker;
static uct_iface_h iface;
static uct_iface_attr_t attr;
static uct_ep_h ep;
static uint64_t came, bytes;
static int gone;
static uint8_t last[512]; /* the last message, if it is that short */
static size_t last_bytes;

/* Memory that peers may write, between two pages that nobody may. */
static uint8_t *window;
#define WINDOW 65536

static ucs_status_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
	const uint8_t *p = data;
	size_t i;

	(void) arg;
	(void) flags;
	EXPECT(length <= attr.cap.am.max_bcopy);
	for (i = 0; i < length; i++)
		bytes += p[i];
	last_bytes = length;
	if (length <= sizeof(last))
		memcpy(last, data, length);
	came++;
	return UCS_OK;
}

/* The bytes of a message that came whole, whatever it was sent from. */
static uint8_t pattern(size_t at)
{
	return (uint8_t) (1 + at % 251);
}

static uint64_t patterns;

static ucs_status_t on_pattern(void *arg, void *data, size_t length, unsigned flags)
{
	const uint8_t *p = data;
	size_t i;

	(void) arg;
	(void) flags;
	for (i = 0; i < length; i++)
		EXPECT(p[i] == pattern(i));
	patterns += length;
	return UCS_OK;
}

/* UCX's message that holds all of a tagged one, behind 8 bytes of header. */
#define WHOLE	     2
#define WHOLE_HEADER 8

static ucs_status_t on_error(void *arg, uct_ep_h failed, ucs_status_t status)
{
	(void) arg;
	(void) failed;
	(void) status;
	gone = 1;
	return UCS_OK;
}

/* The component of that name; NULL: there is none. */
static uct_component_h find_component(const char *name)
{
	uct_component_h found = NULL;
	uct_component_h *all;
	unsigned i, n;

	EXPECT(uct_query_components(&all, &n) == UCS_OK);
	for (i = 0; i < n; i++) {
		uct_component_attr_t a = { .field_mask = UCT_COMPONENT_ATTR_FIELD_NAME };

		EXPECT(uct_component_query(all[i], &a) == UCS_OK);
		if (!strcmp(a.name, name))
			found = all[i];
	}
	uct_release_component_list(all);
	return found;
}

static void open_all(void)
{
	uct_md_config_t *md_config;
	uct_iface_config_t *config;
	uct_iface_params_t params = {
		.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
			      UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
			      UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS,
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
		.mode.device = { .tl_name = "ivshmem", .dev_name = "ivshmem0" },
		.err_handler = on_error,
	};

	component = find_component("ivshmem");
	EXPECT(component != NULL);
	EXPECT(uct_md_config_read(component, NULL, NULL, &md_config) == UCS_OK);
	EXPECT(uct_md_open(component, "ivshmem", md_config, &md) == UCS_OK);
	uct_config_release(md_config);
	EXPECT(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async) == UCS_OK);
	EXPECT(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) == UCS_OK);
	EXPECT(uct_md_iface_config_read(md, "ivshmem", NULL, NULL, &config) == UCS_OK);
	EXPECT(uct_iface_open(md, worker, &params, config, &iface) == UCS_OK);
	uct_config_release(config);
	uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
	EXPECT(uct_iface_query(iface, &attr) == UCS_OK);
	EXPECT(uct_iface_set_am_handler(iface, WHOLE, on_message, NULL, 0) == UCS_OK);
	EXPECT(uct_iface_set_am_handler(iface, 3, on_message, NULL, 0) == UCS_OK);
	EXPECT(uct_iface_set_am_handler(iface, 4, on_pattern, NULL, 0) == UCS_OK);
}

static void close_all(void)
{
	uct_ep_destroy(ep);
	uct_iface_close(iface);
	uct_worker_destroy(worker);
	ucs_async_context_destroy(async);
	uct_md_close(md);
}

static void connect_to(int other)
{
	uint8_t *a = shared->address[rank];
	uct_ep_params_t params = { .field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
						 UCT_EP_PARAM_FIELD_IFACE_ADDR };

	EXPECT(uct_iface_get_device_address(iface, (uct_device_addr_t *) a) == UCS_OK);
	EXPECT(uct_iface_get_address(iface, (uct_iface_addr_t *) (a + 64)) == UCS_OK);
	barrier(NULL);
	a = shared->address[other];
	EXPECT(uct_iface_is_reachable(iface, (uct_device_addr_t *) a, (uct_iface_addr_t *) (a + 64)));
	params.iface = iface;
	params.dev_addr = (uct_device_addr_t *) a;
	params.iface_addr = (uct_iface_addr_t *) (a + 64);
	EXPECT(uct_ep_create(&params, &ep) == UCS_OK);
}

static size_t pack(void *dest, void *arg)
{
	size_t len = *(size_t *) arg;

	memset(dest, 0x5a, len);
	return len;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

/* Of what it can reach: the slots, the connections and every rank's area. Not the header, which is read once. */
static void intrude(double until)
{
	int fd = open(region_path(), O_RDWR | O_CLOEXEC);
	volatile uint64_t *words;
	struct stat st;
	size_t count, i;

	EXPECT(fd >= 0 && !fstat(fd, &st));
	words = mmap(NULL, (size_t) st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(words != MAP_FAILED);
	count = (size_t) st.st_size / 8;
	while (now() < until) {
		size_t at = 1024 + random_number() % (count - 1024);
		uint64_t w = words[at];

		if (!w)
			continue;
		switch (random_number() % 4) {
		case 0:
			words[at] =
				(uint64_t) random_number() << 40 ^ (uint64_t) random_number() << 20 ^ random_number();
			break;
		case 1: words[at] = w ^ 1ULL << random_number() % 64; break;
		case 2:
			/* Words of messages with an op and a length of its own. */
			words[at] = (w & 0xffffffff) | (uint64_t) random_number() << 32;
			break;
		default:
			for (i = 0; i < 8 && at + i < count; i++)
				words[at + i] = words[1024 + random_number() % (count - 1024)];
		}
	}
}

/* One of three is the intruder. seconds each, and again with a fresh region. */
static void hostile(void)
{
	double until = now() + 2;
	uct_rkey_bundle_t key;
	uint8_t rkey[64];
	uct_mem_h memh;
	int turn = 0;

	if (rank == 2) {
		barrier(NULL);
		barrier(NULL);
		barrier(NULL);
		intrude(until);
		return;
	}
	open_all();
	window = mmap(NULL, WINDOW + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(window != MAP_FAILED);
	window += 4096;
	EXPECT(!mprotect(window, WINDOW, PROT_READ | PROT_WRITE));
	EXPECT(uct_md_mem_reg(md, window, WINDOW, UCT_MD_MEM_ACCESS_ALL, &memh) == UCS_OK);
	connect_to(!rank);
	EXPECT(uct_md_mkey_pack(md, memh, rkey) == UCS_OK);
	memcpy(shared->address[rank] + 128, rkey, sizeof(rkey));
	memcpy(shared->address[rank] + 200, &window, sizeof(window));
	barrier(NULL);
	EXPECT(uct_rkey_unpack(component, shared->address[!rank] + 128, &key) == UCS_OK);
	barrier(NULL);
	while (now() < until) {
		size_t len = random_number() % (attr.cap.am.max_bcopy + 1);
		uct_iov_t iov = { .buffer = window, .length = random_number() % 8192, .memh = memh, .count = 1 };
		uint64_t remote;

		memcpy(&remote, shared->address[!rank] + 200, sizeof(remote));
		if (!gone)
			switch (turn++ % 3) {
			case 0:
				uct_ep_am_short(ep, turn % 2 ? 3 : WHOLE, 1, window,
						random_number() % (attr.cap.am.max_short - 7));
				break;
			case 1: uct_ep_am_bcopy(ep, turn % 2 ? 3 : WHOLE, pack, &len, 0); break;
			default: uct_ep_put_zcopy(ep, &iov, 1, remote + random_number() % 32768, key.rkey, NULL);
			}
		uct_iface_progress(iface);
	}
	/* What is left of the connection may be anything. */
	_exit(0);
}

/* Without an intruder: what is sent by each way comes, and a flush says when. */
static void plain(void)
{
	enum { COUNT = 5000 };
	uct_rkey_bundle_t key;
	uint8_t rkey[64];
	uct_mem_h memh;
	uint64_t sent = 0, remote;
	size_t len;

	open_all();
	window = calloc(1, WINDOW);
	EXPECT(uct_md_mem_reg(md, window, WINDOW, UCT_MD_MEM_ACCESS_ALL, &memh) == UCS_OK);
	connect_to(!rank);
	EXPECT(uct_md_mkey_pack(md, memh, rkey) == UCS_OK);
	memcpy(shared->address[rank] + 128, rkey, sizeof(rkey));
	memcpy(shared->address[rank] + 200, &window, sizeof(window));
	barrier(NULL);
	EXPECT(uct_rkey_unpack(component, shared->address[!rank] + 128, &key) == UCS_OK);
	memcpy(&remote, shared->address[!rank] + 200, sizeof(remote));
	while (sent < COUNT) {
		len = sent * 13 % (attr.cap.am.max_bcopy + 1);
		if (sent % 2 ? uct_ep_am_bcopy(ep, 3, pack, &len, 0) >= 0
			     : uct_ep_am_short(ep, 3, 1, window,
					       (unsigned) (sent * 13 % (attr.cap.am.max_short - 7))) == UCS_OK)
			sent++;
		uct_iface_progress(iface);
	}
	/* There are no such ids: nothing is sent, and the peer goes on listening. */
	len = 1000;
	EXPECT(uct_ep_am_short(ep, UCT_AM_ID_MAX, 1, window, 8) == UCS_ERR_INVALID_PARAM);
	EXPECT(uct_ep_am_bcopy(ep, UCT_AM_ID_MAX, pack, &len, 0) == UCS_ERR_INVALID_PARAM);
	while (came < COUNT)
		uct_iface_progress(iface);
	if (!rank) {
		uint8_t data[5000];
		uct_iov_t iov = { .buffer = data, .length = sizeof(data), .count = 1 };

		memset(data, 7, sizeof(data));
		while (uct_ep_put_zcopy(ep, &iov, 1, remote + 100, key.rkey, NULL) == UCS_ERR_NO_RESOURCE)
			uct_iface_progress(iface);
		/* Past its end: the target stops listening, and writes nothing. */
		while (uct_ep_flush(ep, 0, NULL) == UCS_INPROGRESS)
			uct_iface_progress(iface);
		__atomic_store_n(&shared->flag[0], 1, __ATOMIC_RELEASE);
	} else {
		while (!__atomic_load_n(&shared->flag[0], __ATOMIC_ACQUIRE))
			uct_iface_progress(iface);
		EXPECT(window[99] == 0 && window[100] == 7 && window[5099] == 7 && window[5100] == 0);
	}
	while (uct_iface_flush(iface, 0, NULL) == UCS_INPROGRESS)
		uct_iface_progress(iface);
	barrier(NULL);
	uct_rkey_release(component, &key);
	EXPECT(uct_md_mem_dereg(md, memh) == UCS_OK);
	close_all();
}

/* Waits until as many bytes of patterns have come as the other rank has sent. */
static void await_patterns(size_t sent)
{
	while (patterns < sent)
		uct_iface_progress(iface);
	EXPECT(patterns == sent);
	barrier(NULL);
}

/* Data that is copied from where it lies: all lengths of headers, of data, and one, two or too many pieces of it. */
static void zcopy(void)
{
	size_t most = 0, sent = 0, header, len, first, i;
	uct_iov_t iov[12];
	uint8_t *data;

	open_all();
	EXPECT(attr.cap.flags & UCT_IFACE_FLAG_AM_ZCOPY);
	/* UCX up to 1.15 keeps as many on its stack. */
	EXPECT(attr.cap.am.max_iov >= 2 && attr.cap.am.max_iov <= 64);
	most = attr.cap.am.max_zcopy;
	data = malloc(most + 1);
	for (i = 0; i <= most; i++)
		data[i] = pattern(i);
	connect_to(!rank);
	memset(iov, 0, sizeof(iov));
	for (header = 0; header <= attr.cap.am.max_hdr; header++)
		for (len = 0; len + header <= most; len = 3 * len + 1) {
			first = len / 3;
			iov[0] =
				(uct_iov_t) { .buffer = data + header, .length = header % 2 ? len : first, .count = 1 };
			iov[1] = (uct_iov_t) { .buffer = data + header + first, .length = len - first, .count = 1 };
			iov[11] = iov[1];
			while (uct_ep_am_zcopy(ep, 4, data, (unsigned) header, iov, header % 2 ? 1 : 2, 0, NULL) ==
			       UCS_ERR_NO_RESOURCE)
				uct_iface_progress(iface);
			sent += header + len;
			if (!(header % 2)) {
				iov[1].length = 0;
				while (uct_ep_am_zcopy(ep, 4, data, (unsigned) header, iov, 12, 0, NULL) ==
				       UCS_ERR_NO_RESOURCE)
					uct_iface_progress(iface);
				sent += header + len;
			}
			uct_iface_progress(iface);
		}
	iov[0] = (uct_iov_t) { .buffer = data, .length = most, .count = 1 };
	while (uct_ep_am_zcopy(ep, 4, data, 0, iov, 1, 0, NULL) == UCS_ERR_NO_RESOURCE)
		uct_iface_progress(iface);
	sent += most;
	EXPECT(uct_ep_am_zcopy(ep, 4, data, 1, iov, 1, 0, NULL) == UCS_ERR_INVALID_PARAM);
	EXPECT(uct_ep_am_zcopy(ep, UCT_AM_ID_MAX, data, 0, iov, 1, 0, NULL) == UCS_ERR_INVALID_PARAM);
	EXPECT(uct_ep_am_zcopy(ep, 4, data, (unsigned) attr.cap.am.max_hdr + 1, iov, 0, 0, NULL) ==
	       UCS_ERR_INVALID_PARAM);
	await_patterns(sent);
	free(data);
	close_all();
}

/* Short messages, of all lengths: what does not fit the ring goes by a bounce buffer. In pieces, too. */
static void shorts(void)
{
	size_t most = 0, sent = 0, len, first;
	uct_iov_t iov[3];
	uint64_t header;
	uint8_t *data;
	int id, n;

	open_all();
	EXPECT(uct_iface_set_am_handler(iface, WHOLE, on_pattern, NULL, 0) == UCS_OK);
	most = attr.cap.am.max_short;
	EXPECT(most >= 16384);
	data = malloc(most + 1);
	for (len = 0; len <= most; len++)
		data[len] = pattern(len);
	memcpy(&header, data, sizeof(header));
	connect_to(!rank);
	memset(iov, 0, sizeof(iov));
	for (n = 0; n < 2000; n++) {
		len = n < 600 ? (size_t) n : n < 650 ? most - (size_t) (n - 600) : (size_t) n * 7919 % (most + 1);
		id = n % 2 ? 4 : WHOLE;
		if (len >= sizeof(header)) {
			while (uct_ep_am_short(ep, (uint8_t) id, header, data + sizeof(header),
					       (unsigned) (len - sizeof(header))) == UCS_ERR_NO_RESOURCE)
				uct_iface_progress(iface);
			sent += len;
		}
		first = n % 3 ? (size_t) n % 80 : 8;
		if (first > len)
			first = len;
		iov[0] = (uct_iov_t) { .buffer = data, .length = first, .count = 1 };
		iov[1] = (uct_iov_t) { .buffer = data + first, .length = (len - first) / 2, .count = 1 };
		iov[2] = (uct_iov_t) { .buffer = data + first + iov[1].length,
				       .length = len - first - iov[1].length,
				       .count = 1 };
		while (uct_ep_am_short_iov(ep, (uint8_t) id, iov, 3) == UCS_ERR_NO_RESOURCE)
			uct_iface_progress(iface);
		sent += len;
		uct_iface_progress(iface);
	}
	EXPECT(uct_ep_am_short(ep, 4, header, data, (unsigned) most - 7) == UCS_ERR_INVALID_PARAM);
	EXPECT(uct_ep_am_short(ep, UCT_AM_ID_MAX, header, data, 5000) == UCS_ERR_INVALID_PARAM);
	iov[0] = (uct_iov_t) { .buffer = data, .length = most, .count = 1 };
	iov[1] = (uct_iov_t) { .buffer = data, .length = 1, .count = 1 };
	EXPECT(uct_ep_am_short_iov(ep, 4, iov, 2) == UCS_ERR_INVALID_PARAM);
	await_patterns(sent);
	free(data);
	close_all();
}

static size_t pack_pattern(void *dest, void *arg)
{
	uint8_t *d = dest;
	size_t len = *(size_t *) arg, i;

	for (i = 0; i < len; i++)
		d[i] = pattern(i);
	return len;
}

/* Tagged messages, which UCX packs into the region itself where the last one was long enough: all lengths after all. */
static void packed(void)
{
	enum { COUNT = 3000 };
	size_t sent = 0, len;
	int n;

	open_all();
	EXPECT(uct_iface_set_am_handler(iface, WHOLE, on_pattern, NULL, 0) == UCS_OK);
	connect_to(!rank);
	for (n = 0; n < COUNT; n++) {
		len = n % 5 == 3   ? (size_t) n % 400 + 1
		      : n % 7 == 6 ? attr.cap.am.max_bcopy - (size_t) n % 30
				   : 4000 + (size_t) n;
		while (!rank && uct_ep_am_bcopy(ep, WHOLE, pack_pattern, &len, 0) < 0)
			uct_iface_progress(iface);
		sent += len;
	}
	while (rank && patterns < sent)
		uct_iface_progress(iface);
	EXPECT(!rank || patterns == sent);
	barrier(NULL);
	close_all();
}

/* Pieces that lie apart in memory, and those of which there are none. */
static void strided(void)
{
	enum { GROUPS = 5, APART = 700 };
	static uint8_t data[GROUPS * APART];
	uct_iov_t iov[] = {
		{ .buffer = data, .length = 4, .stride = APART, .count = GROUPS },
		{ .buffer = NULL, .length = 100, .count = 0 },
		{ .buffer = data + 4, .length = 3, .count = 1 },
	};
	uct_iov_t put[] = {
		{ .buffer = data, .length = 500, .stride = APART, .count = GROUPS },
		{ .buffer = NULL, .length = 100, .count = 0 },
		{ .buffer = data + 4, .length = 3, .count = 1 },
	};
	uct_rkey_bundle_t key;
	uct_mem_h memh;
	uint64_t remote;
	size_t i;

	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t) (1 + i % 251);
	open_all();
	window = calloc(1, WINDOW);
	EXPECT(uct_md_mem_reg(md, window, WINDOW, UCT_MD_MEM_ACCESS_ALL, &memh) == UCS_OK);
	connect_to(!rank);
	EXPECT(uct_md_mkey_pack(md, memh, shared->address[rank] + 128) == UCS_OK);
	memcpy(shared->address[rank] + 200, &window, sizeof(window));
	barrier(NULL);
	EXPECT(uct_rkey_unpack(component, shared->address[!rank] + 128, &key) == UCS_OK);
	memcpy(&remote, shared->address[!rank] + 200, sizeof(remote));
	if (!rank) {
		EXPECT(uct_ep_am_short_iov(ep, 3, iov, 3) == UCS_OK);
		/* The put comes after it. */
		EXPECT(uct_ep_put_zcopy(ep, put, 3, remote, key.rkey, NULL) == UCS_OK);
		EXPECT(uct_ep_am_short_iov(ep, UCT_AM_ID_MAX, iov, 3) == UCS_ERR_INVALID_PARAM);
		/* All of it is too long, though one piece is not. */
		iov[0].count = (unsigned int) attr.cap.am.max_short;
		iov[0].stride = 0;
		EXPECT(uct_ep_am_short_iov(ep, 3, iov, 3) == UCS_ERR_INVALID_PARAM);
		put[0].count = (unsigned int) attr.cap.put.max_zcopy;
		put[0].stride = 0;
		EXPECT(uct_ep_put_zcopy(ep, put, 3, remote, key.rkey, NULL) == UCS_ERR_INVALID_PARAM);
		while (uct_ep_flush(ep, 0, NULL) == UCS_INPROGRESS)
			uct_iface_progress(iface);
		__atomic_store_n(&shared->flag[0], 1, __ATOMIC_RELEASE);
	} else {
		while (!__atomic_load_n(&shared->flag[0], __ATOMIC_ACQUIRE))
			uct_iface_progress(iface);
		EXPECT(came == 1 && last_bytes == GROUPS * 4 + 3);
		for (i = 0; i < GROUPS; i++) {
			EXPECT(!memcmp(last + i * 4, data + i * APART, 4));
			EXPECT(!memcmp(window + i * 500, data + i * APART, 500));
		}
		EXPECT(!memcmp(last + GROUPS * 4, data + 4, 3) && !memcmp(window + GROUPS * 500, data + 4, 3));
		EXPECT(!window[GROUPS * 500 + 3]);
	}
	barrier(NULL);
	uct_rkey_release(component, &key);
	EXPECT(uct_md_mem_dereg(md, memh) == UCS_OK);
	close_all();
}

/* The bytes of a bounce buffer: a long write comes in pieces of as many. */
static size_t piece(void)
{
	return attr.cap.put.max_zcopy / 4;
}

/* Opens an interface and registers a window that is as long as two of the longest writes. Returns where the peer's is. */
static uint64_t open_window(uct_mem_h *memh, uct_rkey_bundle_t *key)
{
	uint64_t remote;

	open_all();
	window = calloc(2, attr.cap.put.max_zcopy);
	EXPECT(window != NULL);
	EXPECT(uct_md_mem_reg(md, window, 2 * attr.cap.put.max_zcopy, UCT_MD_MEM_ACCESS_ALL, memh) == UCS_OK);
	connect_to(!rank);
	EXPECT(uct_md_mkey_pack(md, *memh, shared->address[rank] + 128) == UCS_OK);
	memcpy(shared->address[rank] + 200, &window, sizeof(window));
	barrier(NULL);
	EXPECT(uct_rkey_unpack(component, shared->address[!rank] + 128, key) == UCS_OK);
	memcpy(&remote, shared->address[!rank] + 200, sizeof(remote));
	return remote;
}

static void close_window(uct_mem_h memh, uct_rkey_bundle_t *key)
{
	barrier(NULL);
	uct_rkey_release(component, key);
	EXPECT(uct_md_mem_dereg(md, memh) == UCS_OK);
	free(window);
	close_all();
}

/* Long writes, which come in pieces: all lengths near a piece's end, of memory in one or in three parts, more than there is room for. */
static void long_puts(void)
{
	size_t most, lengths[16], count = 0, len, n, i;
	uct_rkey_bundle_t key;
	uint64_t remote;
	uct_iov_t iov[3];
	uct_mem_h memh;
	uint8_t *data;

	remote = open_window(&memh, &key);
	most = attr.cap.put.max_zcopy;
	for (i = 1; i <= 4; i++)
		for (n = 0; n < 3; n++)
			if (i * piece() + n - 1 <= most)
				lengths[count++] = i * piece() + n - 1;
	data = malloc(most + 1);
	for (n = 0; n < 2 * count; n++) {
		len = lengths[n / 2];
		for (i = 0; i < len; i++)
			data[i] = pattern(n + i);
		/* Parts that end within pieces. */
		iov[0] = (uct_iov_t) { .buffer = data, .length = n % 2 ? len / 5 : len, .count = 1 };
		iov[1] = (uct_iov_t) { .buffer = data + len / 5, .length = len / 3, .count = 1 };
		iov[2] = (uct_iov_t) { .buffer = data + len / 5 + len / 3,
				       .length = len - len / 5 - len / 3,
				       .count = 1 };
		memset(window, 0, 2 * most);
		barrier(NULL);
		if (!rank) {
			/* As many at once as the region has no room for. */
			for (i = 0; i < 200; i++)
				while (uct_ep_put_zcopy(ep, iov, n % 2 ? 3 : 1, remote + 1 + i, key.rkey, NULL) ==
				       UCS_ERR_NO_RESOURCE)
					uct_iface_progress(iface);
			while (uct_ep_flush(ep, 0, NULL) == UCS_INPROGRESS)
				uct_iface_progress(iface);
			__atomic_store_n(&shared->flag[0], n + 1, __ATOMIC_RELEASE);
		} else {
			while (__atomic_load_n(&shared->flag[0], __ATOMIC_ACQUIRE) != n + 1)
				uct_iface_progress(iface);
			EXPECT(!window[0] && window[1] == data[0] && !window[len + 200]);
			EXPECT(!memcmp(window + 200, data, len));
		}
	}
	iov[0] = (uct_iov_t) { .buffer = data, .length = most + 1, .count = 1 };
	EXPECT(uct_ep_put_zcopy(ep, iov, 1, remote, key.rkey, NULL) == UCS_ERR_INVALID_PARAM);
	free(data);
	close_window(memh, &key);
}

/* The slots of a process that was killed serve the next one. Not each of them is waited for anew: 250 s. */
static void left_behind(void)
{
	enum { SLOTS = 128 };
	uint64_t address[8];
	int i;

	if (!rank)
		barrier(NULL);
	for (i = 0; i < SLOTS; i++) {
		open_all();
		EXPECT(attr.device_addr_len <= sizeof(address));
		EXPECT(uct_iface_get_device_address(iface, (uct_device_addr_t *) address) == UCS_OK);
		/* It has a slot. */
		EXPECT(address[0]);
	}
	if (rank)
		barrier(NULL);
	_exit(0);
}

/* A write to memory that is not registered is refused, and its sender not listened to any more. */
static void refused(void)
{
	uct_iov_t iov = { .buffer = &bytes, .length = 8, .count = 1 };
	uint64_t victim = 42, remote;

	open_all();
	connect_to(!rank);
	remote = (uintptr_t) &victim;
	memcpy(shared->address[rank] + 200, &remote, sizeof(remote));
	barrier(NULL);
	memcpy(&remote, shared->address[!rank] + 200, sizeof(remote));
	if (!rank) {
		EXPECT(uct_ep_put_zcopy(ep, &iov, 1, remote, 12345, NULL) == UCS_OK);
		barrier(NULL);
	} else {
		while (!gone)
			uct_iface_progress(iface);
		EXPECT(victim == 42);
		barrier(NULL);
	}
	close_all();
}

/* The ring from one slot to another, as whoever has the region finds it. */
static uint8_t *find_ring(uint8_t *base, uint32_t from, uint32_t to, const struct nm_conn **conn)
{
	struct nm_region_header h;
	struct nm_layout_geometry g;
	uint8_t *layout;

	EXPECT(!nm_region_read(base, 16 << 20, &h));
	layout = base + h.layout_offset;
	EXPECT(!nm_layout_geometry(((struct nm_layout_head *) (void *) layout)->geometry, h.layout_bytes, &g));
	*conn = (struct nm_conn *) (void *) (layout + g.conn_table) + (size_t) to * g.slots + from;
	EXPECT((*conn)->ring);
	return layout + g.areas + from * g.area_bytes + (uint64_t) ((*conn)->ring - 1) * NM_LAYOUT_LINE +
	       NM_LAYOUT_RING_CTL;
}

/* Writes a message whose words are random, but for the one that says that it is there. */
static void forge(uint8_t *ring, const struct nm_conn *conn, uint64_t *head)
{
	static const uint8_t ops[] = { 0x43, 0x43, 1, 1, 0, 2, 0x7f };
	uint32_t mask = (1U << conn->lines_log2) - 1;
	uint64_t *line = (uint64_t *) (void *) (ring + (*head & mask) * NM_LAYOUT_LINE);
	uint8_t op = ops[random_number() % sizeof(ops)];
	uint64_t flags = random_number() % 3 ? 1 | (random_number() % 4) << 6 : random_number() % 256;
	uint64_t len = random_number() % 3 ? (op == 1 ? 24 : 8) : random_number() % 3 ? random_number() % 340 : 65535;
	uint32_t lap = 0x80000000U | ((uint32_t) (*head >> conn->lines_log2) + conn->lap0);
	int i;

	for (i = 1; i < 8; i++)
		line[i] = (uint64_t) random_number() << 40 ^ random_number();
	/* What a bounce buffer's number and length may just not be, and other things. */
	line[2] = (uint64_t) (random_number() % 2 ? random_number() % 70000 : random_number() << 8) << 32 |
		  (random_number() % 2 ? random_number() % 200 : random_number() << 8);
	__atomic_store_n(line, lap | (uint64_t) op << 32 | flags << 40 | len << 48, __ATOMIC_RELEASE);
	*head += len <= NM_LINE_FIRST_BYTES
			 ? 2
			 : (2 + (len - NM_LINE_FIRST_BYTES + NM_LINE_MORE_BYTES - 1) / NM_LINE_MORE_BYTES) & ~1U;
}

/* Rank 0 writes into its own ring what no transport would. Rank 1 goes on, and listens to others. */
static void forged(void)
{
	enum { ROUNDS = 300 };
	int fd = open(region_path(), O_RDWR | O_CLOEXEC), n, i;
	uint8_t *base = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *ring;
	const struct nm_conn *conn;
	uint16_t from, to;
	uint64_t head, before;
	uct_mem_h memh;

	EXPECT(fd >= 0 && base != MAP_FAILED);
	if (rank) {
		open_all();
		window = calloc(1, WINDOW);
		EXPECT(uct_md_mem_reg(md, window, WINDOW, UCT_MD_MEM_ACCESS_ALL, &memh) == UCS_OK);
	}
	for (n = 0; n < ROUNDS; n++) {
		if (!rank)
			open_all();
		connect_to(!rank);
		barrier(NULL);
		before = came;
		if (!rank) {
			memcpy(&from, shared->address[0] + 64 + 4, sizeof(from));
			memcpy(&to, shared->address[1] + 64 + 4, sizeof(to));
			EXPECT(uct_ep_am_short(ep, 3, 1, "x", 1) == UCS_OK);
			ring = find_ring(base, from, to, &conn);
			barrier(NULL);
			for (i = 0, head = 2; i < 8; i++)
				forge(ring, conn, &head);
			barrier(NULL);
			barrier(NULL);
			close_all();
		} else {
			while (came == before)
				uct_iface_progress(iface);
			barrier(NULL);
			barrier(NULL);
			for (i = 0; i < 1000; i++)
				uct_iface_progress(iface);
			barrier(NULL);
			uct_ep_destroy(ep);
		}
	}
	if (rank) {
		for (i = 0; i < WINDOW; i++)
			EXPECT(!window[i]);
		EXPECT(uct_md_mem_dereg(md, memh) == UCS_OK);
		ep = NULL;
		uct_iface_close(iface);
	}
}

/*
 * Rank 0 writes messages in bounce buffers that are as long as they may be, and then one that is longer, with all lengths of a
 * header. What is longer does not come: UCX made room for no more than is stated.
 */
static void longest(void)
{
	static const struct {
		uint8_t id, header;
		bool at_begin; /* not longer, but without room for the header before it in the rank's area */
	} kinds[] = { { 3, 0, 0 },  { WHOLE, 0, 0 },  { WHOLE, WHOLE_HEADER, 0 }, { 3, 1, 0 },
		      { 3, 56, 0 }, { WHOLE, 56, 0 }, { WHOLE, WHOLE_HEADER, 1 } };
	enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
	int fd = open(region_path(), O_RDWR | O_CLOEXEC), n, over;
	uint8_t *base = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *ring, message[64];
	const struct nm_conn *conn;
	uint64_t head, word, before;
	uint32_t length;
	uint16_t from, to;

	EXPECT(fd >= 0 && base != MAP_FAILED);
	for (n = 0; n < KINDS; n++) {
		gone = 0;
		open_all();
		connect_to(!rank);
		barrier(NULL);
		if (!rank) {
			memcpy(&from, shared->address[0] + 64 + 4, sizeof(from));
			memcpy(&to, shared->address[1] + 64 + 4, sizeof(to));
			EXPECT(uct_ep_am_short(ep, 3, 1, "x", 1) == UCS_OK);
			ring = find_ring(base, from, to, &conn);
			for (over = 0, head = 2; over < 2; over++, head += 2) {
				uint64_t *line = (uint64_t *) (void *) (ring + head * NM_LAYOUT_LINE);

				length = (uint32_t) attr.cap.am.max_bcopy - kinds[n].header +
					 (over && !kinds[n].at_begin);
				memset(message, 0, sizeof(message));
				message[0] = !(over && kinds[n].at_begin);
				memcpy(message + 4, &length, sizeof(length));
				memcpy(line + 2, message, NM_LINE_FIRST_BYTES);
				word = 0x80000000U | conn->lap0 | (uint64_t) (0x40 | kinds[n].id) << 32 | 1ULL << 40 |
				       (8ULL + kinds[n].header) << 48;
				__atomic_store_n(line, word, __ATOMIC_RELEASE);
			}
			barrier(NULL);
		} else {
			before = came;
			barrier(NULL);
			while (!gone)
				uct_iface_progress(iface);
			EXPECT(came == before + 2);
		}
		barrier(NULL);
		close_all();
	}
}

/* Rank 0 makes up writes to memory that it may write, one as long as a piece and one that is longer. That one writes nothing. */
static void longest_put(void)
{
	int fd = open(region_path(), O_RDWR | O_CLOEXEC);
	uint8_t *base = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *ring;
	struct {
		uint32_t page, length;
		uint64_t addr, key;
	} message = { .page = 0 };
	const struct nm_conn *conn;
	uct_rkey_bundle_t key;
	uint64_t *line, word;
	uint16_t from, to;
	uct_mem_h memh;
	int over;

	EXPECT(fd >= 0 && base != MAP_FAILED);
	message.addr = open_window(&memh, &key);
	message.key = key.rkey;
	if (!rank) {
		memcpy(&from, shared->address[0] + 64 + 4, sizeof(from));
		memcpy(&to, shared->address[1] + 64 + 4, sizeof(to));
		EXPECT(uct_ep_am_short(ep, 3, 1, "x", 1) == UCS_OK);
		ring = find_ring(base, from, to, &conn);
		/* Its pool begins with its area. */
		memset(ring - (uint64_t) (conn->ring - 1) * NM_LAYOUT_LINE - NM_LAYOUT_RING_CTL, 7, piece() + 1);
		for (over = 0; over < 2; over++) {
			line = (uint64_t *) (void *) (ring + (size_t) (2 + 2 * over) * NM_LAYOUT_LINE);
			message.length = (uint32_t) piece() + (uint32_t) over;
			message.addr += (uint64_t) over * piece();
			memcpy(line + 2, &message, sizeof(message));
			word = 0x80000000U | conn->lap0 | 1ULL << 32 | 1ULL << 40 | (uint64_t) sizeof(message) << 48;
			__atomic_store_n(line, word, __ATOMIC_RELEASE);
		}
		barrier(NULL);
	} else {
		barrier(NULL);
		while (!gone)
			uct_iface_progress(iface);
		EXPECT(window[0] == 7 && window[piece() - 1] == 7 && !window[piece()]);
	}
	close_window(memh, &key);
}

/* Memory of the region: its domain, an interface and an endpoint for it. */
static uct_component_h shared_component;
static uct_md_h shared_md;
static uct_iface_h shared_iface;
static uct_ep_h shared_ep;

/* A key of such memory, as it is packed. */
struct key {
	uint64_t region, addr, offset, len;
	uint32_t slot, epoch;
};

static void open_shared(void)
{
	uct_md_config_t *md_config;
	uct_iface_config_t *config;
	uct_iface_params_t params = {
		.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
		.mode.device = { .tl_name = "ivshmem_m", .dev_name = "ivshmem_m0" },
	};

	shared_component = find_component("ivshmem_m");
	EXPECT(shared_component != NULL);
	EXPECT(uct_md_config_read(shared_component, NULL, NULL, &md_config) == UCS_OK);
	EXPECT(uct_md_open(shared_component, "ivshmem_m", md_config, &shared_md) == UCS_OK);
	uct_config_release(md_config);
	EXPECT(uct_md_iface_config_read(shared_md, "ivshmem_m", NULL, NULL, &config) == UCS_OK);
	EXPECT(uct_iface_open(shared_md, worker, &params, config, &shared_iface) == UCS_OK);
	uct_config_release(config);
}

static void unpack(void *arg, const void *data, size_t length)
{
	memcpy(arg, data, length);
}

/* Is each atomic operation on a word of 8 bytes there refused? */
static bool no_atomics(uint64_t addr, uct_rkey_t rkey)
{
	uint64_t before = 0xee;
	bool refused = true;
	unsigned op;

	for (op = UCT_ATOMIC_OP_ADD; op <= UCT_ATOMIC_OP_XOR; op++)
		refused &= uct_ep_atomic64_post(shared_ep, op, 1, addr, rkey) != UCS_OK;
	for (op = UCT_ATOMIC_OP_ADD; op <= UCT_ATOMIC_OP_SWAP; op++)
		refused &= uct_ep_atomic64_fetch(shared_ep, op, 1, &before, addr, rkey, NULL) != UCS_OK;
	return refused && uct_ep_atomic_cswap64(shared_ep, 0, 1, addr, rkey, &before, NULL) != UCS_OK && before == 0xee;
}

/* Can nothing be reached by that key and address? */
static bool out_of_reach(const struct key *key, uint64_t addr, size_t len)
{
	static uint8_t data[2 * WINDOW];
	const uct_iov_t iov = { .buffer = data, .length = len, .count = 1 };
	const uct_iov_t endless = { .buffer = data, .length = SIZE_MAX / 2, .count = 3 };
	uct_rkey_bundle_t bundle;
	bool refused;

	memset(data, 0xee, sizeof(data));
	if (uct_rkey_unpack(shared_component, key, &bundle) != UCS_OK)
		return true;
	refused = uct_ep_put_short(shared_ep, data, (unsigned) len, addr, bundle.rkey) != UCS_OK &&
		  (len > 8192 || uct_ep_put_bcopy(shared_ep, pack, &len, addr, bundle.rkey) < 0) &&
		  uct_ep_get_bcopy(shared_ep, unpack, data, len, addr, bundle.rkey, NULL) != UCS_OK &&
		  uct_ep_get_zcopy(shared_ep, &iov, 1, addr, bundle.rkey, NULL) != UCS_OK &&
		  uct_ep_get_zcopy(shared_ep, &endless, 1, addr, bundle.rkey, NULL) != UCS_OK &&
		  uct_ep_put_zcopy(shared_ep, &iov, 1, addr, bundle.rkey, NULL) != UCS_OK &&
		  uct_ep_put_zcopy(shared_ep, &endless, 1, addr, bundle.rkey, NULL) != UCS_OK && *data == 0xee &&
		  (len > 64 || no_atomics(addr, bundle.rkey));
	EXPECT(uct_rkey_release(shared_component, &bundle) == UCS_OK);
	return refused;
}

/* Made up by another VM, or wrong: nothing but that memory is ever reached. */
static void wrong_keys(const struct key *right)
{
	const uint64_t a = right->addr;
	struct key k;
	unsigned int i;
	uct_rkey_bundle_t bundle;
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} wrong[] = {
		{ offsetof(struct key, region), 8, 7 },
		{ offsetof(struct key, slot), 4, UINT32_MAX },
		{ offsetof(struct key, slot), 4, 1 << 12 },
		{ offsetof(struct key, epoch), 4, 0x12345 },
		{ offsetof(struct key, offset), 8, 0 },
		{ offsetof(struct key, offset), 8, 4096 },
		{ offsetof(struct key, offset), 8, UINT64_MAX },
		{ offsetof(struct key, offset), 8, 1ULL << 40 },
		{ offsetof(struct key, offset), 8, UINT64_MAX - WINDOW + 1 },
		{ offsetof(struct key, len), 8, UINT64_MAX },
		{ offsetof(struct key, len), 8, 1ULL << 40 },
		{ offsetof(struct key, addr), 8, UINT64_MAX - 10 },
	};

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		k = *right;
		memcpy((uint8_t *) &k + wrong[i].at, &wrong[i].value, wrong[i].bytes);
		EXPECT(out_of_reach(&k, k.addr, 64) && out_of_reach(&k, a, 64));
	}
	EXPECT(out_of_reach(right, a - 1, 8) && out_of_reach(right, a + WINDOW - 7, 8) &&
	       out_of_reach(right, a + WINDOW, 1));
	EXPECT(out_of_reach(right, a, WINDOW + 1) && out_of_reach(right, 0, 8) &&
	       out_of_reach(right, UINT64_MAX - 3, 8));
	/* Words that straddle two lines, by the address or by the key. */
	k = *right;
	k.offset += 4;
	k.len -= 8;
	EXPECT(uct_rkey_unpack(shared_component, &k, &bundle) == UCS_OK);
	EXPECT(no_atomics(a, bundle.rkey));
	EXPECT(uct_ep_atomic64_post(shared_ep, UCT_ATOMIC_OP_ADD, 0, a + 4, bundle.rkey) == UCS_OK);
	EXPECT(uct_rkey_release(shared_component, &bundle) == UCS_OK);
	EXPECT(out_of_reach(right, a - 8192, 8192) && out_of_reach(right, a + WINDOW - 8, 4096));
	for (i = 0; i < 2000; i++) {
		/* A word of it changed at random: unpacked or not, nothing may crash. */
		k = *right;
		((uint64_t *) &k)[random_number() % 5] ^= 1ULL << random_number() % 64;
		if (uct_rkey_unpack(shared_component, &k, &bundle) != UCS_OK)
			continue;
		uct_ep_get_bcopy(shared_ep, unpack, last, 64, a + random_number() % WINDOW, bundle.rkey, NULL);
		uct_ep_atomic64_post(shared_ep, UCT_ATOMIC_OP_AND, UINT64_MAX, a + random_number() % WINDOW,
				     bundle.rkey);
		EXPECT(uct_rkey_release(shared_component, &bundle) == UCS_OK);
	}
}

/* One rank writes and reads memory of the other's, which does not take part. */
static void shared_memory(void)
{
	static uint8_t data[WINDOW], back[WINDOW];
	uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
	uct_mem_alloc_params_t alloc = { .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_MDS, .mds = { &shared_md, 1 } };
	union {
		uct_allocated_memory_t mem;
		uint8_t room[256]; /* later versions have more in it */
	} m;
	uct_ep_params_t params = { .field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
						 UCT_EP_PARAM_FIELD_IFACE_ADDR };
	uint8_t *a = shared->address[rank];
	uct_rkey_bundle_t bundle;
	struct key key;
	size_t i;

	open_all();
	open_shared();
	connect_to(!rank);
	EXPECT(uct_mem_alloc(WINDOW, &method, 1, &alloc, &m.mem) == UCS_OK);
	memset(m.mem.address, rank, WINDOW);
	EXPECT(uct_iface_get_device_address(shared_iface, (uct_device_addr_t *) (a + 512)) == UCS_OK);
	EXPECT(uct_iface_get_address(shared_iface, (uct_iface_addr_t *) (a + 576)) == UCS_OK);
	EXPECT(uct_md_mkey_pack(shared_md, m.mem.memh, a + 640) == UCS_OK);
	barrier(NULL);
	a = shared->address[!rank];
	EXPECT(uct_iface_is_reachable(shared_iface, (uct_device_addr_t *) (a + 512), (uct_iface_addr_t *) (a + 576)));
	params.iface = shared_iface;
	params.dev_addr = (uct_device_addr_t *) (a + 512);
	params.iface_addr = (uct_iface_addr_t *) (a + 576);
	EXPECT(uct_ep_create(&params, &shared_ep) == UCS_OK);
	memcpy(&key, a + 640, sizeof(key));
	if (!rank) {
		for (i = 0; i < WINDOW; i++)
			data[i] = pattern(i);
		wrong_keys(&key);
		EXPECT(uct_rkey_unpack(shared_component, &key, &bundle) == UCS_OK);
		EXPECT(uct_ep_get_bcopy(shared_ep, unpack, back, WINDOW, key.addr, bundle.rkey, NULL) == UCS_OK);
		for (i = 0; i < WINDOW; i++)
			EXPECT(back[i] == 1);
		{
			/* In pieces that lie apart. */
			const uct_iov_t iov[2] = { { .buffer = last, .length = 40, .count = 1 },
						   { .buffer = last + 100, .length = 30, .stride = 50, .count = 2 } };

			memset(last, 0, 300);
			EXPECT(uct_ep_get_zcopy(shared_ep, iov, 2, key.addr, bundle.rkey, NULL) == UCS_OK);
			for (i = 0; i < 300; i++)
				EXPECT(last[i] == (i < 40 || (i >= 100 && i < 130) || (i >= 150 && i < 180)));
		}
		EXPECT(uct_ep_put_short(shared_ep, data, WINDOW - 100, key.addr, bundle.rkey) == UCS_OK);
		EXPECT(uct_ep_put_short(shared_ep, data + WINDOW - 100, 92, key.addr + WINDOW - 100, bundle.rkey) ==
		       UCS_OK);
		EXPECT(uct_ep_put_bcopy(shared_ep, pack, &(size_t) { 8 }, key.addr + WINDOW - 8, bundle.rkey) == 8);
		EXPECT(uct_ep_flush(shared_ep, 0, NULL) == UCS_OK);
		EXPECT(uct_ep_get_bcopy(shared_ep, unpack, back, WINDOW, key.addr, bundle.rkey, NULL) == UCS_OK);
		EXPECT(!memcmp(back, data, WINDOW - 8) && back[WINDOW - 1] == 0x5a);
	}
	barrier(NULL);
	if (rank)
		for (i = 0; i < WINDOW; i++)
			EXPECT(((uint8_t *) m.mem.address)[i] == (i < WINDOW - 8 ? pattern(i) : 0x5a));
	/* Its owner frees it and leaves. The key leads nowhere then, also if another rank has the slot. */
	barrier(NULL);
	if (rank) {
		uct_mem_free(&m.mem);
		uct_ep_destroy(shared_ep);
		uct_iface_close(shared_iface);
		uct_md_close(shared_md);
		close_all();
		barrier(NULL);
		return;
	}
	barrier(NULL);
	EXPECT(uct_ep_put_short(shared_ep, data, 8, key.addr, bundle.rkey) != UCS_OK);
	EXPECT(uct_rkey_release(shared_component, &bundle) == UCS_OK);
	uct_mem_free(&m.mem);
	uct_ep_destroy(shared_ep);
	uct_iface_close(shared_iface);
	uct_md_close(shared_md);
	close_all();
}

int main(void)
{
	unsigned int major, minor, release;

	setenv("NEARMETAL_UCX_NEAR", "1", 1);
	setenv("FI_IVSHMEM_TIMEOUT", "2000", 0);
	/* That ranks are not listened to any more is what is tested, and not shown. */
	setenv("UCX_LOG_LEVEL", "error", 0);
	run("every way", 2, 64, plain, false);
	run("pieces that lie apart", 2, 64, strided, false);
	run("short messages", 2, 64, shorts, false);
	run("long writes", 2, 64, long_puts, false);
	run("data from where it lies", 2, 64, zcopy, false);
	setenv("FI_IVSHMEM_NT", "0", 1);
	run("packed messages", 2, 64, packed, false);
	unsetenv("FI_IVSHMEM_NT");
	setenv("FI_IVSHMEM_RANKS", "128", 1);
	run("slots that were left behind", 2, 256, left_behind, false);
	unsetenv("FI_IVSHMEM_RANKS");
	run("a write that is refused", 2, 64, refused, false);
	run("messages that were made up", 2, 16, forged, false);
	run("messages longer than stated", 2, 16, longest, false);
	run("writes longer than stated", 2, 16, longest_put, false);
	ucp_get_version(&major, &minor, &release);
	if (HAS_WINDOW(minor))
		run("memory of the region", 2, 64, shared_memory, false);
	run("a third process that spoils the region", 3, 16, hostile, false);
	run("the same again", 3, 4, hostile, false);
	return 0;
}
