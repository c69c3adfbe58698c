/* Counters. */
#include "object/cntr.h"
#include "ofi/open.h"
#include "proto/proto.h"
#include "proto/sleep.h"

static void progress(struct ivs_cntr *cntr)
{
	ivs_lock(cntr->domain);
	ivs_domain_progress(cntr->domain);
	ivs_unlock(cntr->domain);
}

bool ivs_cntr_quiet(void *arg, uint64_t *mark)
{
	const struct ivs_cntr *cntr = arg;

	*mark = cntr->value + cntr->errors;
	return cntr->value == cntr->seen && cntr->errors == cntr->seen_errors;
}

/* Returns the current value of a counter, and stores it as seen by the caller. */
static inline uint64_t read_now(struct ivs_cntr *cntr, const uint64_t *count, uint64_t *seen)
{
	uint64_t value;

	ivs_lock(cntr->domain);
	ivs_domain_progress(cntr->domain);
	value = *seen = *count;
	ivs_unlock(cntr->domain);
	return value;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid);

	return read_now(cntr, &cntr->value, &cntr->seen);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid);

	return read_now(cntr, &cntr->errors, &cntr->seen_errors);
}

static int change(struct fid_cntr *fid, uint64_t value, bool add, bool err)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid);
	uint64_t *at = err ? &cntr->errors : &cntr->value;

	ivs_lock(cntr->domain);
	__atomic_store_n(at, add ? *at + value : value, __ATOMIC_RELEASE);
	ivs_wait_signal(&cntr->wait);
	ivs_unlock(cntr->domain);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, true, false);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, false, false);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, true, true);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, false, true);
}

/* A caller that waits for a counter. */
struct waiter {
	const struct ivs_cntr *cntr;
	uint64_t threshold, errors;
};

static bool waits(void *arg, uint64_t *mark)
{
	const struct waiter *w = arg;

	*mark = w->cntr->value + w->cntr->errors;
	return w->cntr->value < w->threshold && w->cntr->errors == w->errors;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid);
	uint64_t errors = __atomic_load_n(&cntr->errors, __ATOMIC_ACQUIRE);
	struct waiter w = { cntr, threshold, errors };
	uint64_t deadline = ivs_deadline(timeout);
	unsigned int round = 0;
	bool over;

	for (;;) {
		progress(cntr);
		if (__atomic_load_n(&cntr->value, __ATOMIC_ACQUIRE) >= threshold)
			return 0;
		if (__atomic_load_n(&cntr->errors, __ATOMIC_ACQUIRE) != errors)
			return -FI_EAVAIL;
		if (!timeout)
			return -FI_ETIMEDOUT;
		if (ivs_wait_spin(deadline, &round, &over)) {
			if (over)
				return -FI_ETIMEDOUT;
			continue;
		}
		if (!ivs_wait_sleep(cntr->domain, &cntr->wait, waits, &w, deadline))
			return -FI_ETIMEDOUT;
	}
}

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

static int cntr_close(struct fid *fid)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid.fid);

	if (ivs_refs(&cntr->refs))
		return -FI_EBUSY;
	ivs_wait_close(&cntr->wait);
	ivs_unref(&cntr->domain->refs);
	free(cntr);
	return 0;
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct ivs_cntr *cntr = ivs_entry(fid, struct ivs_cntr, fid.fid);

	return ivs_wait_control(&cntr->wait, cntr->wait_obj, command, arg);
}

static struct fi_ops cntr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = ivs_no_bind,
	.control = cntr_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_cntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct ivs_domain *domain = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_cntr *cntr;
	int ret;

	if ((int) attr->events != FI_CNTR_EVENTS_COMP && (int) attr->events != FI_CNTR_EVENTS_COMP + 1)
		return -FI_ENOSYS;
	if (attr->wait_obj == FI_WAIT_SET || attr->wait_obj == FI_WAIT_MUTEX_COND || attr->wait_obj > FI_WAIT_POLLFD)
		return -FI_ENOSYS;
	cntr = calloc(1, sizeof(*cntr));
	if (!cntr)
		return -FI_ENOMEM;
	cntr->domain = domain;
	cntr->wait_obj = attr->wait_obj;
	cntr->bytes = (int) attr->events != FI_CNTR_EVENTS_COMP;
	cntr->wait.epoll = -1;
	if (cntr->wait_obj == FI_WAIT_FD || cntr->wait_obj == FI_WAIT_UNSPEC) {
		ret = ivs_wait_open(domain, &cntr->wait);
		if (ret) {
			free(cntr);
			return ret;
		}
	}
	cntr->fid.fid.fclass = FI_CLASS_CNTR;
	cntr->fid.fid.context = context;
	cntr->fid.fid.ops = &cntr_fi_ops;
	cntr->fid.ops = &cntr_ops;
	ivs_ref(&domain->refs);
	*out = &cntr->fid;
	return 0;
}
