#include <rdma/fi_rma.h>

#include "remote/core_ep.h"
#include "remote/fetch.h"
#include "tune.h"

/* A read of a peer's memory through the core provider. The provider's completion, or a list, points to it. */
struct fetch {
	struct op op;
	struct ivs_list link; /* in ce->fetches, or ce->stalled */
	struct ivs_msg *msg;  /* NULL: nothing waits for it */
	struct ivs_peer *peer;
	size_t len;
	uint64_t addr, key; /* of the sender's memory */
};

bool ivs_core_shows(const struct ivs_peer *peer, size_t count, size_t len)
{
	const struct core_ep *ce = peer->ep->core;

	/* A rank without a region does not read our memory: the core provider matches its messages. */
	return ce && ce->core->reads && peer->addr.kind != IVS_ADDR_TAGGED && count == 1 && len >= IVS_CORE_READ_MIN &&
	       len <= ce->core->info->ep_attr->max_msg_size;
}

bool ivs_core_show(struct ivs_ep *ep, struct ivs_tx *tx, void *base, size_t len, struct ivs_core_rts *where)
{
	struct core_ep *ce = ep->core;
	int mode = ce->core->info->domain_attr->mr_mode;
	uint64_t key = 0;

	if (!(mode & FI_MR_PROV_KEY)) {
		/* Any process that reaches our port may name a key: it must not be predictable. */
		if (!ivs_numbers_ready(&ce->keys))
			return false;
		key = ivs_numbers_take(&ce->keys);
		if (ce->core->info->domain_attr->mr_key_size < sizeof(key))
			key &= (1ULL << 8 * ce->core->info->domain_attr->mr_key_size) - 1;
	}
	if (fi_mr_reg(ce->domain, base, len, FI_REMOTE_READ, 0, key, 0, &tx->core_mr, NULL)) {
		tx->core_mr = NULL;
		return false;
	}
	where->key = fi_mr_key(tx->core_mr);
	where->addr = mode & FI_MR_VIRT_ADDR ? (uintptr_t) base : 0;
	return true;
}

void ivs_core_hide(struct ivs_tx *tx)
{
	fi_close(&tx->core_mr->fid);
	tx->core_mr = NULL;
}

/* Returns the pieces of the receive's memory for the first len bytes in iov, and their number. */
static size_t target(const struct ivs_rx *rx, size_t len, struct iovec *iov)
{
	size_t n = 0, i;

	for (i = 0; i < rx->count && len; i++) {
		if (!rx->iov[i].iov_len)
			continue;
		iov[n] = rx->iov[i];
		if (iov[n].iov_len > len)
			iov[n].iov_len = len;
		len -= iov[n++].iov_len;
	}
	return n;
}

static ssize_t post(struct core_ep *ce, struct fetch *f)
{
	struct iovec iov[IVS_IOV_MAX];
	size_t count = target(f->msg->rx, f->len, iov);
	ssize_t ret = fi_readv(ce->ep, iov, NULL, count, f->peer->core.addr, f->addr, f->key, &f->op.context);

	if (!ret) {
		ce->sending++;
		f->peer->core.reads++;
	}
	return ret;
}

bool ivs_core_fetch(struct ivs_msg *msg, size_t len)
{
	struct ivs_peer *peer = msg->peer;
	struct core_ep *ce = peer->ep->core;
	struct fetch *f;
	ssize_t ret = -FI_EAGAIN;

	if (!ce || !ce->core->reads || len > ce->core->info->ep_attr->max_msg_size || !ivs_core_address(peer))
		return false;
	f = calloc(1, sizeof(*f));
	if (!f)
		return false;
	f->op.kind = OP_FETCH;
	f->msg = msg;
	f->peer = peer;
	f->len = len;
	f->addr = (uintptr_t) msg->iov[0].iov_base;
	f->key = msg->number;
	/* In order: not before reads that wait. */
	if (ivs_list_empty(&ce->stalled))
		ret = post(ce, f);
	if (ret && ret != -FI_EAGAIN) {
		free(f);
		return false;
	}
	ivs_list_add(ret ? &ce->stalled : &ce->fetches, &f->link);
	msg->fetch = f;
	return true;
}

void ivs_core_fetch_forget(struct ivs_msg *msg)
{
	msg->fetch->msg = NULL;
	msg->fetch = NULL;
}

static void end(const struct core_ep *ce, struct fetch *f, int err)
{
	struct ivs_msg *msg = f->msg;

	ivs_list_del(&f->link);
	free(f);
	if (!msg)
		return;
	msg->fetch = NULL;
	ce->ops->fetched(msg, err);
}

int ivs_fetch_stalled(struct core_ep *ce)
{
	struct fetch *f;
	ssize_t ret;
	int done = 0;

	while (!ivs_list_empty(&ce->stalled)) {
		f = ivs_entry(ce->stalled.next, struct fetch, link);
		ret = f->msg && f->peer->channel != IVS_CHAN_DEAD ? post(ce, f) : -FI_EIO;
		if (ret == -FI_EAGAIN)
			break;
		done++;
		if (ret) {
			end(ce, f, FI_EAGAIN);
			continue;
		}
		ivs_list_del(&f->link);
		ivs_list_add(&ce->fetches, &f->link);
	}
	return done;
}

void ivs_fetch_done(struct core_ep *ce, struct op *op, int err)
{
	ce->sending--;
	end(ce, ivs_entry(op, struct fetch, op), err);
}

void ivs_fetch_free(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct ivs_list *lists[] = { &ce->fetches, &ce->stalled }, *pos, *tmp;
	size_t i;

	for (i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		ivs_list_each_safe(pos, tmp, lists[i]) {
			struct fetch *f = ivs_entry(pos, struct fetch, link);

			if (f->msg)
				f->msg->fetch = NULL;
			free(f);
		}
	/* The domain cannot be closed before. */
	ce->ops->hide_all(ep);
}
