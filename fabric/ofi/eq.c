/* Event queues: an application reads what it has written; the provider reports nothing there. */
#include "base/lib.h"
#include "object/domain.h"
#include "object/wait.h"
#include "ofi/eq.h"
#include "ofi/open.h"
#include "region/region.h"
#include "tune.h"

struct event {
	struct ivs_list link;
	uint32_t number;
	size_t len;
	uint8_t data[];
};

struct ivs_eq {
	struct fid_eq fid;
	struct ivs_fabric *fabric;
	pthread_mutex_t lock;
	struct ivs_list events;
	enum fi_wait_obj wait_obj;
	struct ivs_wait wait;
	uint64_t flags;
};

static ssize_t eq_read(struct fid_eq *fid, uint32_t *number, void *buf, size_t len, uint64_t flags)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid);
	ssize_t ret = -FI_EAGAIN;
	struct event *e;

	pthread_mutex_lock(&eq->lock);
	if (!ivs_list_empty(&eq->events)) {
		e = ivs_entry(eq->events.next, struct event, link);
		if (len < e->len) {
			ret = -FI_ETOOSMALL;
		} else {
			*number = e->number;
			memcpy(buf, e->data, e->len);
			ret = (ssize_t) e->len;
			if (!(flags & FI_PEEK)) {
				ivs_list_del(&e->link);
				free(e);
			}
		}
	}
	pthread_mutex_unlock(&eq->lock);
	return ret;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
	(void) fid;
	(void) buf;
	(void) flags;
	return -FI_EAGAIN;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t number, const void *buf, size_t len, uint64_t flags)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid);
	struct event *e;

	if (flags)
		return -FI_EINVAL;
	if (!(eq->flags & FI_WRITE))
		return -FI_EINVAL;
	e = malloc(sizeof(*e) + len);
	if (!e)
		return -FI_ENOMEM;
	e->number = number;
	e->len = len;
	memcpy(e->data, buf, len);
	pthread_mutex_lock(&eq->lock);
	ivs_list_add(&eq->events, &e->link);
	pthread_mutex_unlock(&eq->lock);
	ivs_wait_signal(&eq->wait);
	return (ssize_t) len;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *number, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid);
	uint64_t deadline = ivs_deadline(timeout);
	ssize_t ret;

	if (eq->wait_obj == FI_WAIT_NONE)
		return -FI_EINVAL;
	for (;;) {
		ret = eq_read(fid, number, buf, len, flags);
		if (ret != -FI_EAGAIN || !timeout)
			return ret;
		/* Only eq_write() ends the wait: nothing else needs polling. */
		if (!ivs_wait_block(&eq->wait, eq->wait.epoll >= 0 ? UINT64_MAX : IVS_WAIT_FIRST, deadline))
			return ret;
		ivs_wait_clear(&eq->wait);
	}
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno, const void *err_data, char *buf, size_t len)
{
	(void) fid;
	(void) err_data;
	return ivs_error_text(prov_errno, buf, len);
}

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

static int eq_close(struct fid *fid)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid.fid);

	while (!ivs_list_empty(&eq->events)) {
		struct event *e = ivs_entry(eq->events.next, struct event, link);

		ivs_list_del(&e->link);
		free(e);
	}
	ivs_wait_close(&eq->wait);
	pthread_mutex_destroy(&eq->lock);
	ivs_unref(&eq->fabric->refs);
	free(eq);
	return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid.fid);

	return ivs_wait_control(&eq->wait, eq->wait_obj, command, arg);
}

static struct fi_ops eq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = ivs_no_bind,
	.control = eq_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_eq_trywait(struct fid *fid)
{
	struct ivs_eq *eq = ivs_entry(fid, struct ivs_eq, fid.fid);
	int ret;

	pthread_mutex_lock(&eq->lock);
	ivs_wait_clear(&eq->wait);
	ret = ivs_list_empty(&eq->events) ? 0 : -FI_EAGAIN;
	pthread_mutex_unlock(&eq->lock);
	return ret;
}

int ivs_eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct ivs_fabric *f = ivs_entry(fid, struct ivs_fabric, fid);
	struct ivs_eq *eq;
	int ret;

	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && attr->wait_obj != FI_WAIT_FD &&
	    attr->wait_obj != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	eq->fabric = f;
	eq->flags = attr->flags;
	eq->wait_obj = attr->wait_obj;
	eq->wait.epoll = -1;
	if (attr->wait_obj == FI_WAIT_UNSPEC || attr->wait_obj == FI_WAIT_FD) {
		ret = ivs_wait_open(NULL, &eq->wait);
		if (ret) {
			free(eq);
			return ret;
		}
	}
	pthread_mutex_init(&eq->lock, NULL);
	ivs_list_init(&eq->events);
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fi_ops;
	eq->fid.ops = &eq_ops;
	ivs_ref(&f->refs);
	*out = &eq->fid;
	return 0;
}
