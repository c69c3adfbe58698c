/* Reads and writes peers' memory. */
#include "ofi/open.h"
#include "proto/proto.h"
#include "proto/select.h"
#include "proto/target.h"
#include "proto/traffic.h"
#include "region/ledger.h"
#include "ring/copy.h"

/*
 * Finds a target in the table that its owner shows. Returns false if it is not there, or in a place that this process
 * cannot reach.
 */
static bool find_remote(struct ivs_peer *peer, uint64_t addr, size_t len, uint64_t key, uint32_t access, bool *region,
			struct iovec *out)
{
	struct ivs_region *r = peer->ep->domain->region;
	const struct nm_mr *table = ivs_mrs(r, peer->slot);
	uint64_t count = __atomic_load_n(&table[NM_LAYOUT_MR_COUNT].key, __ATOMIC_ACQUIRE);
	struct nm_mr m;
	uint64_t i, state;

	if (count > NM_LAYOUT_MR_COUNT)
		return false;
	for (i = 0; i < count; i++) {
		state = __atomic_load_n(&table[i].state, __ATOMIC_ACQUIRE);
		if (state & 1 || __atomic_load_n(&table[i].key, __ATOMIC_RELAXED) != key)
			continue;
		if (ivs_mr_copy(&table[i], &m) != state)
			return false;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&table[i].state, __ATOMIC_RELAXED) != state)
			return false;
		if (!m.valid || m.key != key)
			continue;
		if ((m.access & access) != access || addr < m.origin || addr - m.origin > m.len ||
		    len > m.len - (addr - m.origin))
			return false;
		*region = m.access & NM_MR_REGION;
		if (*region) {
			/* Another process wrote the entry: check that the memory is in the region at all. */
			if (m.base > r->header.size_bytes || m.len > r->header.size_bytes - m.base)
				return false;
			ivs_target_keep(ivs_target_at(peer->ep, peer->fi_addr, key), peer, &table[i], &m, state,
					r->base + m.base);
			out->iov_base = r->base + m.base + (addr - m.origin);
		} else {
			const struct ivs_ledger *ledger = peer->alive.ledger;

			/*
			 * The peer's own memory: only as its owner wrote the entry, not anybody else, and only while it
			 * is valid.
			 */
			if (!peer->proto.pid || !ledger || !m.check ||
			    m.check != __atomic_load_n(&ledger->check[i], __ATOMIC_ACQUIRE) ||
			    m.check != ivs_mr_check(peer->alive.key, &m, peer->slot, peer->epoch))
				return false;
			out->iov_base = (void *) (uintptr_t) (m.base + (addr - m.origin));
		}
		out->iov_len = len;
		return true;
	}
	return false;
}

/* Executes the whole operation at once, if every target can be reached. Returns false if not. */
static bool direct(struct ivs_peer *peer, bool write, const struct iovec *iov, size_t count,
		   const struct fi_rma_iov *rma, size_t rma_count, size_t total)
{
	struct iovec remote[IVS_IOV_MAX];
	bool all = true, any = false, region;
	size_t i, at = 0;

	if (peer->channel != IVS_CHAN_RING)
		return false;
	for (i = 0; i < rma_count; i++) {
		if (!find_remote(peer, rma[i].addr, rma[i].len, rma[i].key, write ? NM_MR_WRITE : NM_MR_READ, &region,
				 &remote[i]))
			return false;
		all = all && region;
		any = any || region;
	}
	switch (ivs_select_rma(peer, all, any)) {
	case IVS_RMA_REGION:
		for (i = 0; i < rma_count; i++) {
			if (write && count == 1 && rma_count == 1 && remote[0].iov_len > 256)
				ivs_copy_put(remote[0].iov_base, iov[0].iov_base, remote[0].iov_len);
			else if (write)
				ivs_iov_gather(remote[i].iov_base, remote[i].iov_len, iov, count, at);
			else
				ivs_iov_scatter(iov, count, at, remote[i].iov_base, remote[i].iov_len);
			at += remote[i].iov_len;
		}
		return true;
	case IVS_RMA_CMA: return !ivs_cma(peer, write, iov, count, remote, rma_count, total);
	default: return false;
	}
}

/* Completes an operation. The fence makes it visible to the target before any later message. */
static inline void done(struct ivs_ep *ep, bool write, size_t len, void *context, uint64_t flags)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (flags & FI_COMPLETION)
		ivs_cq_add(ep->tx_cq, context, FI_RMA | (write ? FI_WRITE : FI_READ), len, NULL, 0, 0,
			   FI_ADDR_NOTAVAIL);
	ivs_cntr_inc(ep->cntr[write ? IVS_CNTR_WRITE : IVS_CNTR_READ], len);
}

/*
 * Reads or writes one piece of memory whose place is known. Returns false, without having done anything, if the
 * operation needs the general path.
 */
static inline bool quick(struct ivs_ep *ep, bool write, void *buf, size_t len, fi_addr_t dest,
			 const struct fi_rma_iov *to, void *context, uint64_t flags)
{
	struct ivs_peer *p;
	uint8_t *at;

	if (unlikely(dest >= ep->peers_size || len != to->len || ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD ||
		     flags & (FI_FENCE | FI_REMOTE_CQ_DATA) || (flags & FI_INJECT && len > ep->inject_max)))
		return false;
	p = ep->peers[dest];
	if (unlikely(!p || p->channel != IVS_CHAN_RING))
		return false;
	at = ivs_target_find(ivs_target_at(ep, dest, to->key), p, to->key, to->addr, len,
			     write ? NM_MR_WRITE : NM_MR_READ);
	if (!at)
		return false;
	if (len <= 256)
		ivs_copy_small(write ? at : buf, write ? buf : at, len);
	else if (write)
		ivs_copy_put(at, buf, len);
	else
		ivs_copy_large(buf, at, len);
	done(ep, write, len, context, flags);
	return true;
}

static ssize_t rma(struct ivs_ep *ep, bool write, const struct iovec *iov, size_t count, fi_addr_t dest,
		   const struct fi_rma_iov *riov, size_t rcount, uint64_t data, void *context, uint64_t flags)
{
	size_t total = ivs_iov_bytes(iov, count), rtotal = 0, i;
	struct ivs_packet pkt;
	struct ivs_peer *peer;
	struct ivs_rma head;
	struct ivs_tx *tx = NULL;
	int err;

	if (count > IVS_IOV_MAX || rcount > IVS_IOV_MAX)
		return -FI_EINVAL;
	if (flags & FI_INJECT && total > ep->inject_max)
		return -FI_EMSGSIZE;
	for (i = 0; i < rcount; i++)
		rtotal += riov[i].len;
	if (rtotal != total)
		return -FI_EINVAL;
	if (ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD)
		return -FI_EAGAIN;
	peer = ivs_peer_get(ep, dest, &err);
	if (!peer)
		return err;
	if (flags & FI_FENCE && (!ivs_list_empty(&peer->proto.sending) || !ivs_list_empty(&peer->proto.waiting)))
		return -FI_EAGAIN;
	/* Events of direct writes also wait for room. */
	if (flags & FI_REMOTE_CQ_DATA && peer->proto.ctl_count >= IVS_OPEN_MAX)
		return -FI_EAGAIN;
	if (direct(peer, write, iov, count, riov, rcount, total)) {
		if (flags & FI_REMOTE_CQ_DATA)
			ivs_event_send(peer, data, total);
		done(ep, write, total, context, flags);
		return 0;
	}

	memset(&head, 0, sizeof(head));
	head.total = total;
	head.data = data;
	head.count = (uint32_t) rcount;
	for (i = 0; i < rcount; i++) {
		head.rma[i].addr = riov[i].addr;
		head.rma[i].len = riov[i].len;
		head.rma[i].key = riov[i].key;
	}
	/* Counters count what has arrived, which only the target's ACK reports. */
	if (!(flags & FI_INJECT) || ep->cntr[IVS_CNTR_WRITE] || total > peer->piece) {
		tx = ivs_tx_get(ep, peer);
		if (!tx)
			return -FI_EAGAIN;
		if ((!write || total > peer->piece) && !ivs_tx_open(tx, peer, write ? IVS_OPEN_WRITE : IVS_OPEN_READ)) {
			ivs_tx_put(ep, tx);
			return -FI_EAGAIN;
		}
		head.id = tx->id;
		tx->op = write ? IVS_OP_WRITE : IVS_OP_READ;
		tx->total = total;
		tx->context = context;
		tx->flags = FI_RMA | (write ? FI_WRITE : FI_READ) | (flags & FI_COMPLETION);
		tx->count = count;
		tx->cts = true;
		tx->ack = true;
		memcpy(tx->iov, iov, count * sizeof(*iov));
	}
	memset(&pkt, 0, sizeof(pkt));
	pkt.op = write ? IVS_OP_WRITE : IVS_OP_READ;
	pkt.flags = (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0) | (tx ? IVS_F_ACK : 0);
	pkt.fixed = &head;
	pkt.fixed_len = sizeof(head);
	pkt.iov = iov;
	pkt.count = count;
	pkt.len = write ? (total < peer->piece ? total : peer->piece) : 0;
	err = ivs_packet_send(peer, &pkt);
	if (err) {
		if (tx)
			ivs_tx_put(ep, tx);
		return err;
	}
	if (!tx)
		return 0;
	if (write && pkt.len < total) {
		tx->sent = pkt.len;
		ivs_tx_start(peer, tx);
	} else {
		if (!write)
			tx->ack = false;
		ivs_ack_later(peer, tx);
	}
	return 0;
}

static ssize_t locked(struct fid_ep *fid, bool write, const struct iovec *iov, size_t count, fi_addr_t dest,
		      const struct fi_rma_iov *riov, size_t rcount, uint64_t data, void *context, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	uint64_t copies = 0;
	ssize_t ret = 0;

	ivs_lock(ep->domain);
	if (unlikely(ep->proto.traffic != NULL))
		copies = ivs_traffic_copies(ep, dest);
	if (count != 1 || rcount != 1 || !quick(ep, write, iov->iov_base, iov->iov_len, dest, riov, context, flags))
		ret = rma(ep, write, iov, count, dest, riov, rcount, data, context, flags);
	if (unlikely(ep->proto.traffic != NULL) && !ret)
		ivs_traffic_count(ep, dest, ivs_iov_bytes(iov, count), &copies);
	ivs_unlock(ep->domain);
	return ret;
}

static uint64_t defaults(struct fid_ep *fid)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);

	return ep->tx_comp | ep->tx_flags;
}

static uint64_t selective(struct fid_ep *fid, uint64_t flags)
{
	return flags | ivs_entry(fid, struct ivs_ep, fid)->tx_comp;
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov r = { addr, ivs_iov_bytes(iov, count), key };

	(void) desc;
	return locked(ep, false, iov, count, src, &r, 1, 0, context, defaults(ep));
}

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src, uint64_t addr,
			uint64_t key, void *context)
{
	struct iovec iov = { buf, len };

	(void) desc;
	return rma_readv(ep, &iov, NULL, 1, src, addr, key, context);
}

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	return locked(ep, false, msg->msg_iov, msg->iov_count, msg->addr, msg->rma_iov, msg->rma_iov_count, 0,
		      msg->context, selective(ep, flags & ~(uint64_t) (FI_REMOTE_CQ_DATA | FI_INJECT)));
}

static ssize_t rma_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov r = { addr, ivs_iov_bytes(iov, count), key };

	(void) desc;
	return locked(ep, true, iov, count, dest, &r, 1, 0, context, defaults(ep));
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };

	(void) desc;
	return rma_writev(ep, &iov, NULL, 1, dest, addr, key, context);
}

static ssize_t rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	return locked(ep, true, msg->msg_iov, msg->iov_count, msg->addr, msg->rma_iov, msg->rma_iov_count, msg->data,
		      msg->context, selective(ep, flags));
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	struct fi_rma_iov r = { addr, len, key };

	return locked(ep, true, &iov, 1, dest, &r, 1, 0, NULL, FI_INJECT);
}

static ssize_t rma_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	struct fi_rma_iov r = { addr, len, key };

	(void) desc;
	return locked(ep, true, &iov, 1, dest, &r, 1, data, context, defaults(ep) | FI_REMOTE_CQ_DATA);
}

static ssize_t rma_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
			      uint64_t addr, uint64_t key)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	struct fi_rma_iov r = { addr, len, key };

	return locked(ep, true, &iov, 1, dest, &r, 1, data, NULL, FI_INJECT | FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma ivs_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
