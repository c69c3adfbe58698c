/*
 * Two workers' interfaces of one process over a region, without a UCX: the input determines what one writes into its
 * own ring, without restrictions, and which words of the region are changed in between. The other one receives. It
 * must not crash, nor access anything outside its own memory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../fabric/ring/eager_send.h"
#include "../../fabric/ring/ring.h"
#include "../memory.h"
#include "../object.h"
#include "../register.h"

#define REGION_BYTES (2 << 20)
#define WINDOW	     65536
#define PAGE	     4096

#define MUST(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s failed\n", #x); \
			abort(); \
		} \
	} while (0)

struct input {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	if (bytes > in->left)
		bytes = in->left;
	memcpy(&value, in->at, bytes);
	in->at += bytes;
	in->left -= bytes;
	return value;
}

static struct ivu_component *component;
static struct ivu_tl *transport;
static struct ivu_iface *receiver, *sender;
static struct ivu_md *md;
static struct ivu_ep *ep;
static uint8_t *window; /* registered memory, between two inaccessible pages */
static uint64_t sum;	/* of the received data */
static int file;

/* Replaces UCX in these calls, as far as the transport needs it. */
static void on_component(void *c)
{
	/* The other one only has memory of the region. */
	if (!strcmp(((struct ivu_component *) c)->name, IVU_NAME))
		component = c;
}

static void on_transport(void *c, void *tl)
{
	if (c == component)
		transport = tl;
}

static ivu_status on_message(void *arg, void *data, size_t length, unsigned int flags)
{
	size_t i;

	(void) arg;
	(void) flags;
	MUST(length <= ivu_am_max(receiver->domain.region));
	for (i = 0; i < length; i++)
		sum += ((uint8_t *) data)[i];
	return IVU_OK;
}

static ivu_status on_iface(void *self, void *cls, int *count, const struct ivu_iface_ops *ops, void **internal_ops,
			   struct ivu_md *of, void *worker, const void *params, const void *config)
{
	struct ivu_base_iface *base = self;
	int i;

	(void) cls;
	(void) count;
	(void) worker;
	(void) params;
	(void) config;
	base->ops = *ops;
	base->internal_ops = internal_ops;
	base->md = of;
	for (i = 0; i < IVU_AM_IDS; i++)
		base->am[i].cb = on_message;
	return IVU_OK;
}

static void on_cleanup(void *cls, void *self, int limit)
{
	(void) cls;
	(void) self;
	(void) limit;
}

static void on_disable(void *iface, unsigned int flags)
{
	(void) iface;
	(void) flags;
}

static ivu_status on_error(void *iface, struct ivu_ep *failed, ivu_status status)
{
	(void) iface;
	(void) failed;
	(void) status;
	return IVU_OK;
}

static void begin(void)
{
	struct nm_region_header h = { .version = NM_REGION_VERSION, .header_bytes = NM_REGION_HEADER_BYTES };
	static char path[64];

	snprintf(path, sizeof(path), "/dev/shm/nearmetal-fuzz-ucx-XXXXXX");
	file = mkstemp(path);
	MUST(file >= 0 && !unlink(path));
	memcpy(h.magic, NM_REGION_MAGIC, sizeof(h.magic));
	memset(h.key, 7, sizeof(h.key));
	h.size_bytes = REGION_BYTES;
	h.scratch_offset = h.layout_offset = NM_REGION_HEADER_BYTES;
	h.layout_bytes = h.size_bytes - NM_REGION_HEADER_BYTES;
	h.crc = nm_region_crc32c(&h, offsetof(struct nm_region_header, crc));
	MUST(pwrite(file, &h, sizeof(h), 0) == sizeof(h));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	setenv("NEARMETAL_REGION", path, 1);
	setenv("UCX_LOG_LEVEL", "fatal", 1);
	ivu_uct.minor = IVU_MINOR_LAST;
	MUST(ivu_abi_of(IVU_MINOR_LAST, &ivu_uct.abi));
	ivu_uct.component_register = on_component;
	ivu_uct.tl_register = on_transport;
	ivu_uct.iface_init = on_iface;
	ivu_uct.class_cleanup = on_cleanup;
	ivu_uct.progress_disable = on_disable;
	ivu_uct.handle_ep_err = on_error;
	ivu_base_init();
	ivu_register();
	window = mmap(NULL, WINDOW + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(window != MAP_FAILED);
	window += PAGE;
	MUST(!mprotect(window, WINDOW, PROT_READ | PROT_WRITE));
}

static uint64_t open_all(void)
{
	ivu_status (*md_open)(void *c, const char *name, const void *config, struct ivu_md **md);
	ivu_status (*mem_reg)(struct ivu_md *m, void *address, size_t len, const void *params, void **memh);
	ivu_status (*iface_open)(struct ivu_md *m, void *worker, const void *params, const void *config, void **iface);
	struct ivu_device_addr device;
	struct ivu_iface_addr address;
	struct ivu_ep_params params;
	void *memh, *iface;

	/* Zeroes after the header: a region that was never used. */
	MUST(!ftruncate(file, PAGE) && !ftruncate(file, REGION_BYTES));
	*(void **) &md_open = component->md_open;
	MUST(md_open(component, IVU_NAME, NULL, &md) == IVU_OK);
	*(void **) &mem_reg = md->ops[IVU_MD_MEM_REG];
	MUST(mem_reg(md, window, WINDOW, NULL, &memh) == IVU_OK);
	*(void **) &iface_open = transport->iface_open;
	MUST(iface_open(md, NULL, NULL, NULL, &iface) == IVU_OK);
	receiver = iface;
	MUST(iface_open(md, NULL, NULL, NULL, &iface) == IVU_OK);
	sender = iface;
	receiver->shown.base.ops.get_device_address(receiver, &device);
	receiver->shown.base.ops.get_address(receiver, &address);
	params = (struct ivu_ep_params) { .iface = sender, .dev_addr = &device, .iface_addr = &address };
	MUST(sender->shown.base.ops.ep_create(&params, &ep) == IVU_OK);
	MUST(sender->shown.base.ops.am_short(ep, 3, 1, window, 8) == IVU_OK);
	return ((struct ivu_mem *) memh)->key;
}

static void close_all(void)
{
	void (*md_close)(struct ivu_md *m);

	sender->shown.base.ops.ep_destroy(ep);
	sender->shown.base.ops.iface_close(sender);
	receiver->shown.base.ops.iface_close(receiver);
	*(void **) &md_close = md->ops[IVU_MD_CLOSE];
	md_close(md);
}

/* Writes a message from the input to the sender's ring. */
static void forge(struct input *in, uint64_t key)
{
	struct ivs_peer *p = &ep->peer->ivs;
	uint8_t what = (uint8_t) take(in, 1), flags = (uint8_t) take(in, 1), payload[IVS_INLINE_MAX] = { 0 };
	uint8_t id = (uint8_t) take(in, 1), op = what & 3 ? what & 1 ? IVU_OP_AM | (id & 31) : IVU_OP_PUT : id;
	struct ivs_bounce ref = { .page = (uint32_t) take(in, what & 4 ? 4 : 1), .len = (uint32_t) take(in, 2) };
	uint16_t len = (uint16_t) take(in, 2);
	uint32_t lines;
	size_t have, i;
	struct ivu_put put = { .addr = (uintptr_t) window + take(in, 3) - 4096, .key = key };
	struct nm_line *l;

	/* Most have only one fault: after the first faulty message nobody receives any more. */
	if (what & 16)
		flags = what & 32 ? IVS_F_BOUNCE | (flags & (IVS_F_NT | IVS_F_TIME)) : 0;
	if (what & 64)
		len = (uint16_t) (flags & IVS_F_BOUNCE
					  ? sizeof(ref) + (op == IVU_OP_PUT ? sizeof(put) : len % (IVU_HEADER_MAX + 1))
					  : len % (IVS_INLINE_MAX + 1));
	have = len < sizeof(payload) ? len : sizeof(payload);
	lines = ivs_lines_for(have);
	if (p->channel != IVS_CHAN_RING || !ivs_ring_room(&p->ring, lines))
		return;
	/* First the right value, then the input's. */
	i = 0;
	if (flags & IVS_F_BOUNCE) {
		memcpy(payload, &ref, sizeof(ref));
		i = sizeof(ref);
	}
	if (op == IVU_OP_PUT)
		memcpy(payload + i, &put, sizeof(put));
	for (i = what & 128 ? take(in, 1) % 16 : 0; i; i--)
		payload[take(in, 2) % sizeof(payload)] ^= (uint8_t) take(in, 1);
	l = ivs_line_at(p->ring.tx_ring, p->ring.tx_head, p->ring.tx_mask);
	l->tag = take(in, 8);
	memcpy(l->payload, payload, have < NM_LINE_FIRST_BYTES ? have : NM_LINE_FIRST_BYTES);
	ivs_ring_publish(&p->ring, l, lines, op, flags, len);
}

/* Changes a word of the tables, the rings or the bounce buffers. */
static void spoil(struct input *in)
{
	struct ivs_region *r = receiver->ep.domain->region;
	uint64_t where = take(in, 1), at = take(in, 2), *word;
	uint8_t *base = where & 1 ? r->layout : where & 2 ? (uint8_t *) r->slots : ivs_area(r, sender->ep.home.slot);

	/* The head of the layout is read once, when a rank attaches. */
	at = at * 8 % (r->geo.area_bytes - 8) + (base == r->layout ? PAGE : 0);
	word = (uint64_t *) (void *) (base + at);
	*word = where & 4 ? take(in, 8) : *word ^ 1ULL << (take(in, 1) & 63);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct ivu_iov iov;
	uint64_t key;
	int i;

	if (!component)
		begin();
	key = open_all();
	while (in.left) {
		switch (take(&in, 1) % 8) {
		case 0: spoil(&in); break;
		case 1:
			iov = (struct ivu_iov) { .buffer = window, .length = take(&in, 2) % 20000 };
			sender->shown.base.ops.put_zcopy(ep, &iov, 1, (uintptr_t) window + take(&in, 2), key, NULL);
			break;
		case 2:
		case 3:
			for (i = 0; i < 80; i++)
				receiver->shown.base.ops.iface_progress(receiver);
			break;
		default: forge(&in, key);
		}
	}
	for (i = 0; i < 200; i++)
		receiver->shown.base.ops.iface_progress(receiver);
	sender->shown.base.ops.iface_progress(sender);
	close_all();
	return 0;
}
