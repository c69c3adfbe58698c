#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/table.h"
#include "proto/traffic.h"
#include "ring/copy.h"

#define DESTS_MAX      (1U << 20)   /* more than any job has */
#define FILE_MAX_BYTES (16UL << 20) /* most that internal/traffic reads of a file */

struct ivs_traffic {
	struct fi_ops_tagged tagged, *tagged_below;
	struct fi_ops_msg msg, *msg_below;
	struct ivs_traffic_to **to; /* by fi_addr; NULL: nothing was counted */
	size_t size;
	struct ivs_traffic_to *all;
	char dir[512];
};

static const char *const way_names[] = { "region", "cma", "fabric" };

/* Classes end at 64 bytes times powers of 16. */
const uint8_t ivs_traffic_class[65] = {
	[7 ... 10] = 1, [11 ... 14] = 2, [15 ... 18] = 3, [19 ... 22] = 4, [23 ... 64] = 5,
};

/* Returns the counts of dest, or NULL without memory or without such a peer. */
static struct ivs_traffic_to *find(struct ivs_ep *ep, fi_addr_t dest)
{
	struct ivs_traffic *t = ep->proto.traffic;
	struct ivs_traffic_to *to, **table;

	if (dest >= DESTS_MAX || !ep->av || dest >= ep->av->count || !ep->av->used[dest])
		return NULL;
	table = ivs_table_grow(t->to, &t->size, dest, sizeof(struct ivs_traffic_to *));
	if (!table)
		return NULL;
	t->to = table;
	to = table[dest];
	/* An address may have been removed, and another one have its number now. */
	if (to && !memcmp(&to->addr, &ep->av->addr[dest], sizeof(to->addr)))
		return to;
	to = aligned_alloc(_Alignof(struct ivs_traffic_to), sizeof(*to));
	if (!to)
		return NULL;
	memset(to, 0, sizeof(*to));
	to->addr = ep->av->addr[dest];
	to->next = t->all;
	t->all = to;
	t->to[dest] = to;
	return to;
}

uint64_t ivs_traffic_copies(const struct ivs_ep *ep, fi_addr_t dest)
{
	return dest < ep->peers_size && ep->peers[dest] ? ep->peers[dest]->proto.cma_copies : 0;
}

void ivs_traffic_count(struct ivs_ep *ep, fi_addr_t dest, size_t len, const uint64_t *copies)
{
	struct ivs_peer *p = dest < ep->peers_size ? ep->peers[dest] : NULL;
	enum ivs_traffic_way way = !p || p->channel != IVS_CHAN_RING	      ? IVS_TRAFFIC_FABRIC
				   : copies && p->proto.cma_copies != *copies ? IVS_TRAFFIC_CMA
									      : IVS_TRAFFIC_REGION;
	struct ivs_traffic_to *to = p && p->proto.traffic ? p->proto.traffic : find(ep, dest);

	if (unlikely(!to))
		return;
	if (p)
		p->proto.traffic = to;
	ivs_traffic_add(&to->by[way], len);
}

void ivs_traffic_announced(struct ivs_peer *peer, size_t len, bool read)
{
	struct ivs_traffic_sum *from, *by;
	struct ivs_traffic_to *to;
	unsigned int class;

	if (!peer->ep->proto.traffic || peer->fi_addr == FI_ADDR_NOTAVAIL)
		return;
	to = peer->proto.traffic ? peer->proto.traffic : find(peer->ep, peer->fi_addr);
	if (!to)
		return;
	peer->proto.traffic = to;
	from = &to->by[read ? IVS_TRAFFIC_REGION : IVS_TRAFFIC_CMA];
	by = &to->by[read ? IVS_TRAFFIC_CMA : IVS_TRAFFIC_REGION];
	class = ivs_traffic_class_of(len);
	from->ops[class]--;
	from->bytes -= (int64_t) len;
	ivs_traffic_add(by, len);
}

/* Counts a message that was accepted. Returns ret. */
static inline ssize_t sent(struct ivs_ep *ep, fi_addr_t dest, size_t len, ssize_t ret)
{
	if (likely(!ret)) {
		ivs_lock(ep->domain);
		ivs_traffic_count(ep, dest, len, NULL);
		ivs_unlock(ep->domain);
	}
	return ret;
}

#define EP(fid)	    ivs_entry(fid, struct ivs_ep, fid)
#define TAGGED(fid) EP(fid)->proto.traffic->tagged_below
#define MSG(fid)    EP(fid)->proto.traffic->msg_below

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	return sent(EP(fid), dest, len, TAGGED(fid)->send(fid, buf, len, desc, dest, tag, context));
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	ssize_t ret = TAGGED(fid)->sendv(fid, iov, desc, count, dest, tag, context);

	return ret ? ret : sent(EP(fid), dest, ivs_iov_bytes(iov, count), 0);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags)
{
	ssize_t ret = TAGGED(fid)->sendmsg(fid, m, flags);

	return ret ? ret : sent(EP(fid), m->addr, ivs_iov_bytes(m->msg_iov, m->iov_count), 0);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	return sent(EP(fid), dest, len, TAGGED(fid)->inject(fid, buf, len, dest, tag));
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
			       fi_addr_t dest, uint64_t tag, void *context)
{
	return sent(EP(fid), dest, len, TAGGED(fid)->senddata(fid, buf, len, desc, data, dest, tag, context));
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
				 uint64_t tag)
{
	return sent(EP(fid), dest, len, TAGGED(fid)->injectdata(fid, buf, len, data, dest, tag));
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, void *context)
{
	return sent(EP(fid), dest, len, MSG(fid)->send(fid, buf, len, desc, dest, context));
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	ssize_t ret = MSG(fid)->sendv(fid, iov, desc, count, dest, context);

	return ret ? ret : sent(EP(fid), dest, ivs_iov_bytes(iov, count), 0);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	ssize_t ret = MSG(fid)->sendmsg(fid, m, flags);

	return ret ? ret : sent(EP(fid), m->addr, ivs_iov_bytes(m->msg_iov, m->iov_count), 0);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest)
{
	return sent(EP(fid), dest, len, MSG(fid)->inject(fid, buf, len, dest));
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	return sent(EP(fid), dest, len, MSG(fid)->senddata(fid, buf, len, desc, data, dest, context));
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
	return sent(EP(fid), dest, len, MSG(fid)->injectdata(fid, buf, len, data, dest));
}

void ivs_traffic_open(struct ivs_ep *ep, const struct fi_ops_tagged *counted)
{
	const char *dir = getenv("NEARMETAL_TRAFFIC");
	struct ivs_traffic *t;

	if (!dir || *dir != '/' || strlen(dir) >= sizeof(t->dir))
		return;
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	strcpy(t->dir, dir);
	t->tagged_below = ep->fid.tagged;
	t->tagged = *ep->fid.tagged;
	t->tagged.send = tagged_send;
	t->tagged.sendv = tagged_sendv;
	t->tagged.sendmsg = tagged_sendmsg;
	t->tagged.inject = tagged_inject;
	t->tagged.senddata = tagged_senddata;
	t->tagged.injectdata = tagged_injectdata;
	if (counted) {
		t->tagged.send = counted->send;
		t->tagged.inject = counted->inject;
		t->tagged.senddata = counted->senddata;
		t->tagged.injectdata = counted->injectdata;
	}
	t->msg_below = ep->fid.msg;
	t->msg = *ep->fid.msg;
	t->msg.send = msg_send;
	t->msg.sendv = msg_sendv;
	t->msg.sendmsg = msg_sendmsg;
	t->msg.inject = msg_inject;
	t->msg.senddata = msg_senddata;
	t->msg.injectdata = msg_injectdata;
	ep->proto.traffic = t;
	ep->fid.tagged = &t->tagged;
	ep->fid.msg = &t->msg;
}

/* Returns the rank that the launcher reports, or -1. */
static long rank(void)
{
	static const char *const names[] = { "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *value = getenv(names[i]);
		char *end;
		long n;

		if (!value || *value < '0' || *value > '9')
			continue;
		n = strtol(value, &end, 10);
		if (!*end && n <= (long) DESTS_MAX)
			return n;
	}
	return -1;
}

/* Prints an address as others know it: its slot, or the core provider's address. */
static void print_addr(FILE *f, const struct ivs_addr *a, bool core)
{
	size_t i;

	if (!core && a->kind == IVS_ADDR_SLOT) {
		fprintf(f, " slot:%016llx:%u:%u", (unsigned long long) a->id, (unsigned int) a->slot, a->epoch);
		return;
	}
	fprintf(f, " core:");
	for (i = 0; i < a->core_len && i < sizeof(a->core); i++)
		fprintf(f, "%02x", a->core[i]);
}

/* Adds the messages that were counted by length to the sum of the region. */
static void sum_eager(struct ivs_traffic_to *to)
{
	struct ivs_traffic_sum *by = &to->by[IVS_TRAFFIC_REGION];
	size_t len;

	for (len = 0; len <= IVS_INLINE_MAX; len++) {
		by->ops[ivs_traffic_class_of(len)] += (int64_t) to->eager[len];
		by->bytes += (int64_t) (to->eager[len] * len);
		to->eager[len] = 0;
	}
}

/* Prints all counts as text, which internal/traffic reads. */
static void print(FILE *f, const struct ivs_ep *ep)
{
	struct ivs_traffic_to *to;
	char host[65] = "";
	int way, k;

	gethostname(host, sizeof(host) - 1);
	fprintf(f, "nearmetal-traffic 1\nself %ld %ld %s", rank(), (long) getpid(), *host ? host : "-");
	if (ep->addr.kind == IVS_ADDR_SLOT)
		print_addr(f, &ep->addr, false);
	if (ep->addr.core_len)
		print_addr(f, &ep->addr, true);
	fputc('\n', f);
	for (to = ep->proto.traffic->all; to; to = to->next) {
		sum_eager(to);
		for (way = 0; way < IVS_TRAFFIC_WAYS; way++) {
			const struct ivs_traffic_sum *by = &to->by[way];
			int64_t sum = 0;

			for (k = 0; k < IVS_TRAFFIC_CLASSES; k++)
				sum += by->ops[k];
			if (sum <= 0)
				continue;
			fprintf(f, "to");
			print_addr(f, &to->addr, false);
			fprintf(f, " %s %lld", way_names[way], (long long) by->bytes);
			for (k = 0; k < IVS_TRAFFIC_CLASSES; k++)
				fprintf(f, " %lld", (long long) by->ops[k]);
			fputc('\n', f);
		}
	}
	fprintf(f, "end\n");
}

/*
 * Opens the directory, and creates it if it is missing. Returns -1 unless it is this user's own and not writable for
 * others.
 */
static int open_dir(const char *path)
{
	struct stat st;
	int fd;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -1;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 022))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Writes a new file in dir, completely or not at all. */
static bool write_file(int dir, const char *text, size_t len)
{
	static unsigned int number;
	char host[65] = "", name[128];
	size_t done = 0;
	int fd;

	gethostname(host, sizeof(host) - 1);
	if (strchr(host, '/'))
		*host = 0;
	snprintf(name, sizeof(name), "%s.%ld.%u", *host ? host : "host", (long) getpid(),
		 __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	while (done < len) {
		ssize_t n = write(fd, text + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t) n;
	}
	if (done < len)
		unlinkat(dir, name, 0);
	return !close(fd) && done == len;
}

static void save(const struct ivs_ep *ep)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	bool done = false;
	int dir;

	if (!f)
		return;
	print(f, ep);
	if (fclose(f)) {
		free(text);
		return;
	}
	errno = EFBIG;
	dir = len <= FILE_MAX_BYTES ? open_dir(ep->proto.traffic->dir) : -1;
	if (dir >= 0) {
		done = write_file(dir, text, len);
		if (!done)
			IVS_WARN(FI_LOG_EP_CTRL, "NEARMETAL_TRAFFIC: cannot write into %s: %s\n",
				 ep->proto.traffic->dir, ivs_lib.strerror(errno));
		close(dir);
	} else {
		IVS_WARN(FI_LOG_EP_CTRL, "NEARMETAL_TRAFFIC=%s: %s; it has to be a directory of this user's own\n",
			 ep->proto.traffic->dir, ivs_lib.strerror(errno));
	}
	free(text);
}

void ivs_traffic_close(struct ivs_ep *ep, bool write)
{
	struct ivs_traffic *t = ep->proto.traffic;

	if (!t)
		return;
	if (write)
		save(ep);
	ep->fid.tagged = t->tagged_below;
	ep->fid.msg = t->msg_below;
	ep->proto.traffic = NULL;
	while (t->all) {
		struct ivs_traffic_to *to = t->all;

		t->all = to->next;
		free(to);
	}
	free(t->to);
	free(t);
}
