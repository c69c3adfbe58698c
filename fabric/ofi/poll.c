/* Poll sets: report which queues and counters of a set have events. */
#include "base/common.h"
#include "base/lib.h"
#include "base/list.h"
#include "object/cntr.h"
#include "object/cq.h"
#include "ofi/open.h"
#include "proto/proto.h"

struct member {
	struct ivs_list link;
	struct fid *fid;
	uint64_t seen; /* counter: its value at the last poll */
};

struct ivs_poll {
	struct fid_poll fid;
	struct ivs_domain *domain;
	struct ivs_list members;
};

static uint64_t counted(const struct ivs_cntr *cntr)
{
	return cntr->value + cntr->errors;
}

static int poll_poll(struct fid_poll *fid, void **context, int count)
{
	struct ivs_poll *set = ivs_entry(fid, struct ivs_poll, fid);
	struct ivs_list *pos;
	int n = 0;

	ivs_lock(set->domain);
	ivs_domain_progress(set->domain);
	ivs_list_each(pos, &set->members) {
		struct member *m = ivs_entry(pos, struct member, link);
		bool ready;

		if (n == count)
			break;
		if (m->fid->fclass == FI_CLASS_CQ) {
			struct ivs_cq *cq = ivs_entry(m->fid, struct ivs_cq, fid.fid);

			ready = cq->head != cq->tail;
		} else {
			struct ivs_cntr *cntr = ivs_entry(m->fid, struct ivs_cntr, fid.fid);

			ready = counted(cntr) != m->seen;
			m->seen = counted(cntr);
		}
		if (ready)
			context[n++] = m->fid->context;
	}
	ivs_unlock(set->domain);
	return n;
}

static int poll_add(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct ivs_poll *set = ivs_entry(fid, struct ivs_poll, fid);
	struct member *m;

	if (flags || (event->fclass != FI_CLASS_CQ && event->fclass != FI_CLASS_CNTR))
		return -FI_EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	m->fid = event;
	if (event->fclass == FI_CLASS_CQ) {
		ivs_ref(&ivs_entry(event, struct ivs_cq, fid.fid)->refs);
	} else {
		struct ivs_cntr *cntr = ivs_entry(event, struct ivs_cntr, fid.fid);

		ivs_ref(&cntr->refs);
		m->seen = counted(cntr);
	}
	ivs_list_add(&set->members, &m->link);
	return 0;
}

static void drop(struct member *m)
{
	if (m->fid->fclass == FI_CLASS_CQ)
		ivs_unref(&ivs_entry(m->fid, struct ivs_cq, fid.fid)->refs);
	else
		ivs_unref(&ivs_entry(m->fid, struct ivs_cntr, fid.fid)->refs);
	ivs_list_del(&m->link);
	free(m);
}

static int poll_del(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct ivs_poll *set = ivs_entry(fid, struct ivs_poll, fid);
	struct ivs_list *pos, *tmp;

	if (flags)
		return -FI_EINVAL;
	ivs_list_each_safe(pos, tmp, &set->members) {
		struct member *m = ivs_entry(pos, struct member, link);

		if (m->fid == event) {
			drop(m);
			return 0;
		}
	}
	return -FI_EINVAL;
}

static struct fi_ops_poll poll_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_poll,
	.poll_add = poll_add,
	.poll_del = poll_del,
};

static int poll_close(struct fid *fid)
{
	struct ivs_poll *set = ivs_entry(fid, struct ivs_poll, fid.fid);

	while (!ivs_list_empty(&set->members))
		drop(ivs_entry(set->members.next, struct member,
			       link)); /* NOLINT(clang-analyzer-unix.Malloc): as in list.h */
	ivs_unref(&set->domain->refs);
	free(set);
	return 0;
}

static struct fi_ops poll_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = poll_close,
	.bind = ivs_no_bind,
	.control = ivs_no_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_poll_open(struct fid_domain *fid, struct fi_poll_attr *attr, struct fid_poll **out)
{
	struct ivs_domain *domain = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_poll *set;

	if (attr && attr->flags)
		return -FI_EINVAL;
	set = calloc(1, sizeof(*set));
	if (!set)
		return -FI_ENOMEM;
	set->domain = domain;
	ivs_list_init(&set->members);
	set->fid.fid.fclass = FI_CLASS_POLL;
	set->fid.fid.ops = &poll_fi_ops;
	set->fid.ops = &poll_ops;
	ivs_ref(&domain->refs);
	*out = &set->fid;
	return 0;
}
