/* Interfaces: one for each worker of UCX, with a slot of the region. */
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "abi/log.h"
#include "ep.h"
#include "iface.h"
#include "memory.h"
#include "peer.h"
#include "proto/proto.h"
#include "region/heap.h"
#include "region/siphash.h"
#include "ring/bounce.h"
#include "ring/ring.h"

/*
 * Returns a hash of the conditions under which UCX's own shared memory reaches a rank: the kernel and the IPC
 * namespace. Between ranks for which both are equal it is faster for large messages, because one copy is enough.
 */
static uint64_t kernel_hash(void)
{
	static const uint8_t zeros[16];
	char text[128] = "";
	struct stat st;
	ssize_t n = 0;
	int fd;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, 64);
		close(fd);
	}
	text[n > 0 ? n : 0] = 0;
	if (!stat("/proc/self/ns/ipc", &st))
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%ju", (uintmax_t) st.st_ino);
	return ivs_siphash(zeros, text, strlen(text));
}

/* NEARMETAL_UCX_NEAR=1: ranks of the same kernel are also reached; for tests, and without UCX's shared memory. */
static bool near_wanted(void)
{
	const char *text = getenv("NEARMETAL_UCX_NEAR");

	return text && !strcmp(text, "1");
}

/*
 * The minimum that a write of a rendezvous must carry, bytes: the default of UCX_MIN_RNDV_CHUNK_SIZE. UCX from 1.16
 * on sends a lane that much at once, and a build with assertions aborts if the lane accepts less.
 */
_Static_assert(IVU_PIECES *NM_LAYOUT_BOUNCE_BYTES >= 16 << 10, "a put of the smallest region is too short for UCX");

static ivu_status iface_query(struct ivu_iface *i, struct ivu_iface_attr *a)
{
	const struct ivs_region *r = i->domain.region;

	memset(a, 0, sizeof(*a));
	a->am.max_short = a->am.max_bcopy = a->am.max_zcopy = ivu_am_max(r);
	a->am.max_hdr = IVU_HEADER_MAX;
	a->am.align_mtu = a->am.opt_zcopy_align = 1;
	a->am.max_iov = IVU_AM_IOV_MAX;
	a->put.max_zcopy = ivu_put_max(r);
	a->put.opt_zcopy_align = a->put.align_mtu = 1;
	a->put.max_iov = IVU_IOV_MAX;
	a->flags = IVU_FLAG_AM_SHORT | IVU_FLAG_AM_BCOPY | IVU_FLAG_AM_ZCOPY | IVU_FLAG_PENDING | IVU_FLAG_PUT_ZCOPY |
		   IVU_FLAG_PEER_FAILURE | IVU_FLAG_EP_CHECK | IVU_FLAG_CONNECT_TO_IFACE | IVU_FLAG_CB_SYNC |
		   (ivu_uct.minor >= 18 ? IVU_FLAG_INTER_NODE : 0);
	a->event_flags = IVU_EVENT_SEND_COMP | IVU_EVENT_RECV | IVU_EVENT_FD;
	a->device_addr_len = sizeof(struct ivu_device_addr);
	a->iface_addr_len = sizeof(struct ivu_iface_addr);
	/*
	 * The values by which UCX chooses its lanes, and from 1.16 on its protocols. They are measured for the
	 * choice, and not a promise: docs/ucx.md. A rendezvous assumes that its writes need no copies, as on a card.
	 * Here they need as many as other messages. An overhead compensates for that: messages of up to 32 KiB need
	 * two thirds of the time without a rendezvous. UCX adds a copy to a short message. Here it has only the copy
	 * that others also have, and is the fastest way as long as it is possible. Therefore it states a high
	 * bandwidth, and messages from the user's memory a higher start-up cost.
	 */
	a->overhead = 10e-9;
	a->latency.c = 80e-9;
	a->dedicated = 12e9;
	if (i->shown.estimated == IVU_OPERATION_PUT_ZCOPY) {
		/* No latency: UCX would omit it for back-to-back messages. */
		a->overhead = 5.7e-6;
		a->latency.c = 0;
	} else if (i->shown.estimated == IVU_OPERATION_AM_SHORT) {
		a->dedicated = 100e9;
	} else if (i->shown.estimated == IVU_OPERATION_AM_ZCOPY) {
		a->overhead = 1e-6;
		a->dedicated = 9e9;
	}
	a->max_num_eps = SIZE_MAX;
	/*
	 * UCX 1.13 writes a rendezvous by two lanes, however slow the second one is: tcp, if this device has no other
	 * path. Each progress would then also poll tcp. Later versions omit such a lane.
	 */
	a->dev_num_paths = ivu_uct.minor == 13 ? 2 : 1;
	return IVU_OK;
}

static ivu_status get_device_address(struct ivu_iface *i, void *addr)
{
	memcpy(addr, &i->addr, sizeof(i->addr));
	return IVU_OK;
}

static ivu_status get_address(struct ivu_iface *i, void *addr)
{
	struct ivu_iface_addr a = { .epoch = i->ep.home.epoch,
				    .slot = (uint16_t) i->ep.home.slot,
				    .format = IVU_FORMAT };

	memcpy(addr, &a, sizeof(a));
	return IVU_OK;
}

static int is_reachable(struct ivu_iface *i, const void *dev_addr, const void *iface_addr)
{
	struct ivu_device_addr d;
	struct ivu_iface_addr a = { .format = IVU_FORMAT };

	memcpy(&d, dev_addr, sizeof(d));
	if (iface_addr)
		memcpy(&a, iface_addr, sizeof(a));
	return i->addr.region && d.region == i->addr.region && a.format == IVU_FORMAT &&
	       a.slot < i->ep.domain->region->geo.slots && (d.kernel != i->addr.kernel || near_wanted());
}

static int is_connected(struct ivu_ep *ep, const struct ivu_reachable_params *p)
{
	struct ivu_device_addr d;
	struct ivu_iface_addr a;

	if (!(p->field_mask & IVU_REACHABLE_DEVICE_ADDR) || !(p->field_mask & IVU_REACHABLE_IFACE_ADDR))
		return 0;
	memcpy(&d, p->device_addr, sizeof(d));
	memcpy(&a, p->iface_addr, sizeof(a));
	return d.region == ep->iface->addr.region && a.slot == ep->peer->ivs.slot && a.epoch == ep->peer->ivs.epoch;
}

/* A separate function, so that the fast path saves few registers. */
static unsigned int __attribute__((noinline)) progress_all(struct ivu_iface *i)
{
	uint64_t before = i->came;

	ivs_ep_progress(&i->ep);
	return (unsigned int) (i->came - before);
}

/*
 * The fast path, with one ring that is polled in each call and no other work: most calls of a caller that waits in a
 * loop find nothing, and a message is soon received. Each call checks an eighth of the activity bytes.
 */
static unsigned int iface_progress(struct ivu_iface *i)
{
	struct ivs_ep *ep = &i->ep;
	struct ivs_peer *p = ep->hot[0];
	uint32_t tick = ep->ticks + 1;
	int n;

	if (unlikely(ivu_alien(i)))
		return 0;
	if (unlikely(ep->hot_count != 1 || p->ring.quiet_until || !(tick % IVS_TURN_TICKS) ||
		     !ivs_list_empty(&ep->active) || !p->ring.rx_ring))
		return progress_all(i);
	if (!ivs_ring_pending(&p->ring)) {
		if (unlikely(ivs_some_activity(ep->me, tick)))
			return progress_all(i);
		ep->ticks = tick;
		ivs_ring_idle(&p->ring);
		return 0;
	}
	ep->ticks = tick;
	n = ivs_ring_poll(ep, p);
	ivs_ring_use(&p->ring, tick);
	ivs_pace(&p->ring, n);
	return (unsigned int) n;
}

static ivu_status iface_flush(struct ivu_iface *i, unsigned int flags, struct ivu_completion *comp)
{
	struct ivs_list *pos;
	bool done = true;

	(void) flags;
	if (comp)
		return IVU_ERR_UNSUPPORTED;
	if (ivu_alien(i) || !i->puts)
		return IVU_OK;
	ivs_list_each(pos, &i->ep.peers_all)
		if (!ivu_peer_put_done(ivu_peer_of(ivs_entry(pos, struct ivs_peer, all))))
			done = false;
	return done ? IVU_OK : IVU_INPROGRESS;
}

static ivu_status iface_fence(struct ivu_iface *i, unsigned int flags)
{
	/* A ring keeps the order of messages. */
	(void) i;
	(void) flags;
	return IVU_OK;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000000000U + (uint64_t) ts.tv_nsec;
}

static ivu_status event_fd_get(struct ivu_iface *i, int *fd)
{
	if (i->timer < 0)
		i->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	*fd = i->timer;
	return i->timer < 0 ? IVU_ERR_IO_ERROR : IVU_OK;
}

/*
 * Another VM cannot wake this one, because no interrupt leads there. Therefore the descriptor becomes readable after
 * a wait timeout, which grows with the time without messages, as the provider's does.
 */
static ivu_status event_arm(struct ivu_iface *i, unsigned int events)
{
	struct itimerspec timeout = { .it_value = { 0, 0 } };
	struct ivs_list *pos;
	uint64_t now, ns;
	int fd;

	(void) events;
	if (ivu_alien(i) || event_fd_get(i, &fd) != IVU_OK)
		return IVU_ERR_IO_ERROR;
	if (!ivs_list_empty(&i->ep.active) || (i->ep.me && ivs_any_activity(i->ep.me)))
		return IVU_ERR_BUSY;
	ivs_list_each(pos, &i->ep.peers_all)
		if (ivs_ring_pending(&ivs_entry(pos, struct ivs_peer, all)->ring))
			return IVU_ERR_BUSY;
	now = now_ns();
	if (i->idle_came != i->came || !i->idle_since) {
		i->idle_came = i->came;
		i->idle_since = now;
	}
	ns = (now - i->idle_since) / IVS_WAIT_SHORT_PART;
	ns = ns < IVS_WAIT_SHORT_FIRST ? IVS_WAIT_SHORT_FIRST : ns > IVS_WAIT_SHORT_MOST ? IVS_WAIT_SHORT_MOST : ns;
	timeout.it_value.tv_nsec = (long) ns;
	/* It also resets the readable state of the descriptor. */
	return timerfd_settime(i->timer, 0, &timeout, NULL) ? IVU_ERR_IO_ERROR : IVU_OK;
}

/* Releases the slot, with all its resources in the region. */
static void leave(struct ivu_iface *i)
{
	struct ivs_ep *ep = &i->ep;
	struct ivs_list *pos, *tmp;

	if (!ivu_alien(i))
		ivs_ep_cool(ep);
	ivs_list_each_safe(pos, tmp, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		if (!ivu_alien(i))
			ivs_ring_close(&p->ring);
		ivu_peer_free(ivu_peer_of(p));
	}
	ivs_home_free(&ep->home);
	free(i->buffers);
	i->buffers = NULL;
	free(ep->by_slot);
	ivs_home_leave(&ep->home);
	ep->by_slot = NULL;
	ep->enabled = false;
}

static void iface_close(struct ivu_iface *i)
{
	ivu_uct.progress_disable(i, IVU_PROGRESS_SEND | IVU_PROGRESS_RECV);
	ivu_uct.class_cleanup(ivu_uct.iface_class, i, -1);
	leave(i);
	if (i->timer >= 0)
		close(i->timer);
	free(i);
}

static void fill_ops(struct ivu_iface_ops *ops)
{
	ivu_iface_ops_fill(ops);
	ivu_ep_ops(ops);
	ops->iface_flush = iface_flush;
	ops->iface_fence = iface_fence;
	ops->progress_enable = ivu_uct.progress_enable;
	*(void **) &ops->progress_disable = IVU_FN(ivu_uct.progress_disable);
	ops->iface_progress = iface_progress;
	ops->event_fd_get = event_fd_get;
	ops->event_arm = event_arm;
	ops->iface_close = iface_close;
	*(void **) &ops->iface_query = IVU_FN(iface_query);
	ops->get_device_address = get_device_address;
	ops->get_address = get_address;
	ops->is_reachable = is_reachable;
}

static int find_provider(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void) size;
	(void) arg;
	return name && !strcmp(name, "/libivshmem-fi.so");
}

/*
 * Returns whether this process also has the libfabric provider, and that has priority. Open MPI opens both at its
 * start, and closes the one that it does not use. The slots are for the one that it uses: UCX if it was requested.
 */
static bool provider_goes_first(void)
{
	const char *pml = getenv("OMPI_MCA_pml");

	return dl_iterate_phdr(find_provider, NULL) && !getenv("OMPI_MCA_pml_ucx_priority") &&
	       !(pml && strstr(pml, "ucx") && *pml != '^');
}

/* Acquires a slot. false: none is free, and this interface reaches nobody. */
static bool join(struct ivu_iface *i)
{
	struct ivs_ep *ep = &i->ep;
	struct ivs_region *r = i->domain.region;
	void *memory;

	ep->by_slot = calloc(r->geo.slots, sizeof(struct ivs_peer *));
	if (posix_memalign(&memory, IVU_PAGE, 2 * IVU_PAGE + ivu_put_max(r) + ivu_am_max(r)))
		memory = NULL;
	i->buffers = memory;
	i->packed = i->buffers + IVU_PACKED_AT;
	i->received = i->packed + IVU_PAGE + ivu_put_max(r);
	if (!memory || !ep->by_slot || ivs_home_claim(&ep->home, r, 0))
		goto failed;
	ep->me = &r->slots[ep->home.slot];
	ep->enabled = true;
	i->addr.region = r->id;
	i->addr.kernel = kernel_hash();
	ivs_slot_live(r, ep->home.slot, ep->home.epoch);
	return true;
failed:
	free(i->buffers);
	i->buffers = NULL;
	free(ep->by_slot);
	ep->by_slot = NULL;
	return false;
}

static ivu_status iface_open(struct ivu_md *md, void *worker, const void *params, const void *config, void **iface)
{
	struct ivs_region *region = ivs_entry(md, struct ivu_memory, md)->region;
	struct ivu_iface_ops ops;
	struct ivu_iface *i;
	ivu_status status;

	fill_ops(&ops);
	status = ivu_iface_new(sizeof(*i), &ops, md, worker, params, config, iface);
	if (status != IVU_OK)
		return status;
	i = *iface;
	i->forks = ivu_forks;
	i->timer = -1;
	i->domain.region = region;
	i->domain.wake = -1;
	i->ep.domain = &i->domain;
	ivs_home_init(&i->ep.home, NM_PROTOCOL_UCX, NULL);
	ivs_list_init(&i->ep.peers_all);
	ivs_list_init(&i->ep.active);
	/*
	 * UCX aborts the program if an interface does not open. With one that reaches nobody it uses its other
	 * transports.
	 */
	if (provider_goes_first())
		ivu_log(IVU_LOG_INFO, "the libfabric provider is in this process: UCX leaves the region to it");
	else if (!join(i))
		ivu_log(IVU_LOG_WARN, "there is no slot for this worker in region %s: it uses other transports",
			region->path);
	return IVU_OK;
}

void ivu_iface_transport(struct ivu_transport *t)
{
	t->tl.iface_open = IVU_FN(iface_open);
	t->is_connected = IVU_FN(is_connected);
}
