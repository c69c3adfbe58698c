/* The provider's attributes, and its objects. */
#include <poll.h>
#include <pthread.h>

#include "lists.h"

static void info(struct ctx *c)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	static const struct setup plain;

	(void) c;
	info = get_info(&plain);
	CHECK(!strcmp(info->fabric_attr->prov_name, "ivshmem"));
	CHECK(info->ep_attr->type == FI_EP_RDM && !info->domain_attr->mr_mode);
	CHECK(info->domain_attr->cq_data_size >= 4 && info->tx_attr->inject_size >= 64);
	CHECK(info->tx_attr->msg_order & FI_ORDER_SAS);
	CHECK(info->src_addr && info->src_addrlen == 64);
	CHECK(info->mode == 0);
	fi_freeinfo(info);

	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup("ivshmem");
	hints->ep_attr->type = FI_EP_DGRAM;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->ep_attr->type = FI_EP_MSG;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_COLLECTIVE;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->caps = FI_MSG;
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->tx_attr->inject_size = 1 << 20;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->tx_attr->inject_size = 0;
	hints->domain_attr->name = strdup("eth0");
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	free(hints->domain_attr->name);
	hints->domain_attr->name = NULL;
	OK(fi_getinfo(FI_VERSION(1, 9), "localhost", "7000", 0, hints, &info));
	CHECK(info->dest_addr && info->dest_addrlen == 64);
	CHECK(!(info->caps & (FI_TAGGED | FI_RMA)) && info->caps & FI_MSG);
	fi_freeinfo(info);
	OK(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, FI_PROV_ATTR_ONLY, hints, &info));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* Before API 1.5 memory registration was either basic or scalable. */
static void old_versions(struct ctx *c)
{
	static const uint32_t minors[] = { 0, 1, 4 };
	enum { UNSPEC, BASIC, SCALABLE }; /* fi_mr_mode, deprecated since */
	struct fi_info *hints = fi_allocinfo(), *info;
	size_t i;
	int mode;

	(void) c;
	hints->fabric_attr->prov_name = strdup("ivshmem");
	hints->mode = ~0ULL;
	hints->caps = FI_MSG | FI_RMA;
	for (i = 0; i < sizeof(minors) / sizeof(minors[0]); i++)
		for (mode = UNSPEC; mode <= SCALABLE; mode++) {
			hints->domain_attr->mr_mode = mode;
			OK(fi_getinfo(FI_VERSION(1, minors[i]), NULL, NULL, 0, hints, &info));
			CHECK(info->domain_attr->mr_mode == (mode ? mode : SCALABLE));
			fi_freeinfo(info);
		}
	fi_freeinfo(hints);
	/* Like Intel MPI's first call: the oldest version, and no hints. */
	OK(fi_getinfo(0, NULL, NULL, 0, NULL, &info));
	CHECK(!strcmp(info->fabric_attr->prov_name, "ivshmem") && !info->domain_attr->mr_mode);
	fi_freeinfo(info);
}

/* Optional parts of libfabric return an error if they are not supported. */
static void not_offered(struct ctx *c)
{
	struct fi_info *info = c->info;
	struct fi_tx_attr tx = { 0 };
	struct fi_rx_attr rx = { 0 };
	struct fid_ep *ep;
	struct fid_stx *stx;
	struct fid_pep *pep;
	struct fid_wait *wait;
	struct fi_wait_attr wa = { 0 };
	void *ops;

	CHECK(fi_scalable_ep(c->domain, info, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_stx_context(c->domain, &tx, &stx, NULL) == -FI_ENOSYS);
	CHECK(fi_srx_context(c->domain, &rx, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_passive_ep(c->fabric, info, &pep, NULL) == -FI_ENOSYS);
	CHECK(c->fabric->ops->wait_open(c->fabric, &wa, &wait) == -FI_ENOSYS);
	CHECK(fi_open_ops(&c->domain->fid, "no such thing", 0, &ops, NULL) == -FI_ENOSYS);
	CHECK(c->ep->cm->connect(c->ep, NULL, NULL, 0) == -FI_ENOSYS);
}

static void addresses(struct ctx *c)
{
	unsigned char addr[64], other[64];
	fi_addr_t a, b, none = FI_ADDR_NOTAVAIL;
	size_t len = 10;
	char text[64];

	CHECK(fi_getname(&c->ep->fid, addr, &len) == -FI_ETOOSMALL && len == 64);
	OK(fi_getname(&c->ep->fid, addr, &len));
	CHECK(fi_av_insert(c->av, addr, 1, &a, 0, NULL) == 1);
	CHECK(fi_av_insert(c->av, addr, 1, &b, 0, NULL) == 1 && a != b);
	len = sizeof(other);
	OK(fi_av_lookup(c->av, b, other, &len));
	CHECK(len == 64 && !memcmp(addr, other, 64));
	len = sizeof(text);
	CHECK(strstr(fi_av_straddr(c->av, addr, text, &len), "ivshmem://"));
	OK(fi_av_remove(c->av, &b, 1, 0));
	CHECK(fi_av_lookup(c->av, b, other, &len) < 0);
	CHECK(fi_av_remove(c->av, &b, 1, 0) < 0);
	CHECK(fi_av_insert(c->av, addr, 1, &b, 0, NULL) == 1);
	/* Invalid bytes are not an address, and no rank has it. */
	memset(other, 0xff, sizeof(other));
	CHECK(fi_av_insert(c->av, other, 1, &b, 0, NULL) == 0 && b == FI_ADDR_NOTAVAIL);
	CHECK(fi_tsend(c->ep, addr, 1, NULL, none, 0, NULL) == -FI_EINVAL);
	CHECK(fi_tsend(c->ep, addr, 1, NULL, 12345, 0, NULL) == -FI_EINVAL);
	/* The address of an unused slot, or of another epoch. */
	memcpy(other, addr, 64);
	other[4] ^= 0x55;
	CHECK(fi_av_insert(c->av, other, 1, &b, 0, NULL) == 1);
	CHECK(fi_tsend(c->ep, addr, 1, NULL, b, 0, NULL) == -FI_EIO);
}

static void options(struct ctx *c)
{
	size_t size = 0, len = sizeof(size);
	uint64_t flags = FI_TRANSMIT;

	size = 77;
	OK(fi_setopt(&c->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, sizeof(size)));
	size = 0;
	OK(fi_getopt(&c->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, &len));
	CHECK(size == 77 && len == sizeof(size));
	CHECK(fi_setopt(&c->ep->fid, FI_OPT_ENDPOINT, 9999, &size, sizeof(size)) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&c->ep->fid, 7, FI_OPT_MIN_MULTI_RECV, &size, sizeof(size)) < 0);
	OK(fi_control(&c->ep->fid, FI_GETOPSFLAG, &flags));
	flags = FI_TRANSMIT | FI_DELIVERY_COMPLETE;
	OK(fi_control(&c->ep->fid, FI_SETOPSFLAG, &flags));
	flags = FI_TRANSMIT;
	OK(fi_control(&c->ep->fid, FI_GETOPSFLAG, &flags));
	CHECK(flags == FI_DELIVERY_COMPLETE);
	CHECK(fi_enable(c->ep) == -FI_EOPBADSTATE);
}

/* Objects in use are not closed; incomplete ones are not enabled. */
static void life(struct ctx *c)
{
	static const struct setup plain;
	struct fid_ep *ep;
	struct fi_info *info = get_info(&plain);

	CHECK(fi_close(&c->domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&c->av->fid) == -FI_EBUSY);
	CHECK(fi_close(&c->rxcq->fid) == -FI_EBUSY);
	OK(fi_endpoint(c->domain, info, &ep, NULL));
	CHECK(fi_enable(ep) == -FI_ENOAV);
	OK(fi_ep_bind(ep, &c->av->fid, 0));
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	OK(fi_ep_bind(ep, &c->txcq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(ep));
	OK(fi_close(&ep->fid));
	fi_freeinfo(info);
}

static void event_queue(struct ctx *c)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	struct fi_eq_entry in = { .context = c, .data = 5 }, out;
	struct fid *fids[1];
	struct pollfd pfd = { .events = POLLIN };
	struct fid_eq *eq;
	uint32_t event;

	OK(fi_eq_open(c->fabric, &attr, &eq, NULL));
	CHECK(fi_eq_read(eq, &event, &out, sizeof(out), 0) == -FI_EAGAIN);
	OK(fi_control(&eq->fid, FI_GETWAIT, &pfd.fd));
	fids[0] = &eq->fid;
	OK(fi_trywait(c->fabric, fids, 1));
	CHECK(fi_eq_write(eq, FI_NOTIFY, &in, sizeof(in), 0) == sizeof(in));
	CHECK(poll(&pfd, 1, -1) == 1);
	CHECK(fi_trywait(c->fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_eq_sread(eq, &event, &out, sizeof(out), -1, FI_PEEK) == sizeof(out));
	CHECK(fi_eq_read(eq, &event, &out, sizeof(out), 0) == sizeof(out));
	CHECK(event == FI_NOTIFY && out.data == 5 && out.context == c);
	CHECK(fi_eq_sread(eq, &event, &out, sizeof(out), 1, 0) == -FI_EAGAIN);
	OK(fi_close(&eq->fid));
}

static void counters(struct ctx *c)
{
	int in, k;

	for (k = 1; k <= 20; k++) {
		if (c->rank == 0) {
			RETRY(c, k % 2 ? fi_tsend(c->ep, &k, sizeof(k), NULL, c->peer[1], 1, NULL)
				       : fi_tinject(c->ep, &k, sizeof(k), c->peer[1], 1));
			OK(fi_cntr_wait(c->tx_cntr, (uint64_t) k, -1));
		} else {
			OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
			OK(fi_cntr_wait(c->rx_cntr, (uint64_t) k, -1));
			CHECK(in == k);
		}
	}
	CHECK(fi_cntr_wait(c->rd_cntr, 1, 1) == -FI_ETIMEDOUT);
	OK(fi_cntr_set(c->rd_cntr, 5));
	OK(fi_cntr_add(c->rd_cntr, 2));
	OK(fi_cntr_adderr(c->rd_cntr, 3));
	CHECK(fi_cntr_read(c->rd_cntr) == 7 && fi_cntr_readerr(c->rd_cntr) == 3);
}

static void poll_set(struct ctx *c)
{
	struct fi_poll_attr attr = { 0 };
	struct fid_poll *set;
	void *got[4];
	int in, n;

	OK(c->domain->ops->poll_open(c->domain, &attr, &set));
	OK(set->ops->poll_add(set, &c->rxcq->fid, 0));
	CHECK(set->ops->poll(set, got, 4) == 0);
	OK(fi_trecv(c->ep, &in, sizeof(in), NULL, c->peer[0], 1, 0, NULL));
	RETRY(c, fi_tinject(c->ep, &c->rank, sizeof(c->rank), c->peer[0], 1));
	while (!(n = set->ops->poll(set, got, 4)))
		;
	CHECK(n == 1);
	wait_comp(c, c->rxcq);
	CHECK(fi_close(&c->rxcq->fid) == -FI_EBUSY);
	OK(set->ops->poll_del(set, &c->rxcq->fid, 0));
	OK(fi_close(&set->fid));
}

/* Sleeping until something arrives: by a call, and by a descriptor. */
static void waiting(struct ctx *c)
{
	struct fi_cq_tagged_entry e;
	struct fid *fids[1] = { &c->rxcq->fid };
	struct pollfd pfd = { .events = POLLIN };
	int in, k;

	OK(fi_control(&c->rxcq->fid, FI_GETWAIT, &pfd.fd));
	CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, 1) == -FI_EAGAIN);
	for (k = 0; k < 20; k++) {
		if (c->rank == 0) {
			if (k % 4 == 0)
				usleep(3000);
			RETRY(c, fi_tinject(c->ep, &k, sizeof(k), c->peer[1], 1));
			continue;
		}
		OK(fi_trecv(c->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
		if (k % 2) {
			CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, -1) == 1);
		} else {
			for (;;) {
				ssize_t n = fi_cq_read(c->rxcq, &e, 1);

				if (n == 1)
					break;
				CHECK(n == -FI_EAGAIN);
				if (!fi_trywait(c->fabric, fids, 1))
					CHECK(poll(&pfd, 1, 10000) == 1);
			}
		}
		CHECK(in == k);
	}
	OK(fi_cq_signal(c->rxcq));
	CHECK(fi_cq_sread(c->rxcq, &e, 1, NULL, -1) == -FI_EAGAIN);
}

static void cq_formats(struct ctx *c)
{
	static const enum fi_cq_format formats[] = { FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA,
						     FI_CQ_FORMAT_TAGGED };
	static const size_t bytes[] = { 8, 24, 40, 48 };
	struct ctx d = *c;
	struct fi_cq_attr attr = { 0 };
	unsigned char room[2][64];
	fi_addr_t me;
	size_t len = 64, k;
	int in;

	for (k = 0; k < 4; k++) {
		attr.format = formats[k];
		OK(fi_cq_open(c->domain, &attr, &d.rxcq, NULL));
		OK(fi_endpoint(c->domain, c->info, &d.ep, NULL));
		OK(fi_ep_bind(d.ep, &c->av->fid, 0));
		OK(fi_ep_bind(d.ep, &d.rxcq->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_enable(d.ep));
		OK(fi_getname(&d.ep->fid, room, &len));
		CHECK(fi_av_insert(c->av, room, 1, &me, 0, NULL) == 1);
		OK(fi_trecv(d.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 9, 0, &in));
		RETRY(c, fi_tinject(d.ep, &c->rank, sizeof(c->rank), me, 9));
		memset(room, 0xcc, sizeof(room));
		while (fi_cq_read(d.rxcq, room, 1) == -FI_EAGAIN)
			;
		/* Exactly the bytes of the format are written. */
		CHECK(*(void **) (void *) room == &in && room[0][bytes[k]] == 0xcc && room[0][bytes[k] - 1] != 0xcc);
		OK(fi_close(&d.ep->fid));
		OK(fi_close(&d.rxcq->fid));
	}
}

#define THREADS	   4
#define PER_THREAD 500

struct job {
	struct ctx *c;
	int id;
};

static void *sender(void *arg)
{
	struct job *j = arg;
	int i;

	for (i = 0; i < PER_THREAD; i++) {
		static __thread char buf[9000];
		size_t len = i % 10 ? 16 : sizeof(buf);

		fill(buf, len, (unsigned int) i);
		for (;;) {
			ssize_t n = fi_tinject(j->c->ep, buf, len < 4000 ? len : 4000, j->c->peer[1],
					       (uint64_t) (j->id * 1000 + i));
			struct fi_cq_tagged_entry e;

			if (!n)
				break;
			CHECK(n == -FI_EAGAIN);
			fi_cq_read(j->c->txcq, &e, 0);
		}
	}
	return NULL;
}

static void *receiver(void *arg)
{
	struct job *j = arg;
	static __thread char buf[4000];
	int i;

	for (i = 0; i < PER_THREAD; i++) {
		struct fi_cq_tagged_entry e;
		int *done = calloc(1, sizeof(*done));

		OK(fi_trecv(j->c->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, (uint64_t) (j->id * 1000 + i), 0, done));
		/* A thread that reads another's completion wakes that thread. */
		while (!__atomic_load_n(done, __ATOMIC_ACQUIRE))
			if (fi_cq_read(j->c->rxcq, &e, 1) == 1)
				__atomic_store_n((int *) e.op_context, 1, __ATOMIC_RELEASE);
		CHECK(filled(buf, i % 10 ? 16 : 4000, (unsigned int) i));
		free(done);
	}
	return NULL;
}

static void threads(struct ctx *c)
{
	pthread_t t[THREADS];
	struct job jobs[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		jobs[i] = (struct job) { c, i };
		OK(pthread_create(&t[i], NULL, c->rank ? receiver : sender, &jobs[i]));
	}
	for (i = 0; i < THREADS; i++)
		OK(pthread_join(t[i], NULL));
}

static void *opener(void *arg)
{
	struct job *j = arg;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cq *cq;
	int i;

	for (i = 0; i < 20000; i++) {
		OK(fi_cq_open(j->c->domain, &attr, &cq, NULL));
		OK(fi_close(&cq->fid));
	}
	return NULL;
}

/* Threads open and close objects of one domain, which knows when it is not in use. */
static void opened_by_threads(struct ctx *c)
{
	pthread_t t[THREADS];
	struct job jobs[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		jobs[i] = (struct job) { c, i };
		OK(pthread_create(&t[i], NULL, opener, &jobs[i]));
	}
	for (i = 0; i < THREADS; i++)
		OK(pthread_join(t[i], NULL));
}

const struct test test_objects[] = {
	{ "info", 1, info, .bare = true },
	{ "old_versions", 1, old_versions, .bare = true, .env = { "FI_PROVIDER=ivshmem" } },
	{ "not_offered", 1, not_offered },
	{ "addresses", 1, addresses },
	{ "addresses_map", 1, addresses, .setup = { .av_type = FI_AV_MAP } },
	{ "options", 1, options },
	{ "life", 1, life },
	{ "event_queue", 1, event_queue },
	{ "counters", 2, counters, .setup = { .counters = true } },
	{ "poll_set", 1, poll_set },
	{ "waiting", 2, waiting, .setup = { .wait_obj = FI_WAIT_FD } },
	{ "cq_formats", 1, cq_formats },
	{ "threads", 2, threads, .setup = { .threading = FI_THREAD_SAFE } },
	{ "opened_by_threads", 1, opened_by_threads, .setup = { .threading = FI_THREAD_SAFE } },
	{ 0 }
};
