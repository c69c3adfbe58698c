/* The calls of fi_atomic. The target's owner executes the operations, one after the other. */
#include "ofi/open.h"
#include "proto/proto.h"
#include "proto/traffic.h"
#include "ring/copy.h"

/* Converts elements of a vector to pieces of memory. Returns the bytes, or -1. */
static ssize_t to_iov(const struct fi_ioc *ioc, size_t count, size_t size, struct iovec *iov)
{
	size_t i, sum = 0;

	if (count > IVS_IOV_MAX)
		return -1;
	for (i = 0; i < count; i++) {
		if (ioc[i].count > IVS_ATOMIC_MAX)
			return -1;
		iov[i].iov_base = ioc[i].addr;
		iov[i].iov_len = ioc[i].count * size;
		sum += iov[i].iov_len;
	}
	return (ssize_t) sum;
}

static ssize_t atomic(struct ivs_ep *ep, uint8_t kind, const struct fi_msg_atomic *m, const struct fi_ioc *compare,
		      size_t ncompare, const struct fi_ioc *result, size_t nresult, uint64_t flags)
{
	size_t size = (unsigned int) m->datatype < 256 ? ivs_type_bytes((uint8_t) m->datatype) : 0;
	uint64_t dir = m->op == FI_ATOMIC_READ || kind != IVS_ATOMIC_WRITE ? FI_READ : FI_WRITE;
	struct iovec iov[2 * IVS_IOV_MAX], riov[IVS_IOV_MAX];
	size_t i, rtotal = 0, count = 0;
	struct ivs_packet pkt;
	struct ivs_peer *peer;
	struct ivs_atomic head;
	struct ivs_tx *tx = NULL;
	ssize_t total, n;
	int err;

	if (!size || (unsigned int) m->op > 255 || !ivs_atomic_valid((uint8_t) m->datatype, (uint8_t) m->op, kind))
		return -FI_EOPNOTSUPP;
	if (m->rma_iov_count > IVS_IOV_MAX)
		return -FI_EINVAL;
	for (i = 0; i < m->rma_iov_count; i++) {
		if (m->rma_iov[i].count > IVS_ATOMIC_MAX)
			return -FI_EINVAL;
		rtotal += m->rma_iov[i].count * size;
	}
	if (m->op == FI_ATOMIC_READ) {
		total = (ssize_t) rtotal;
	} else {
		total = to_iov(m->msg_iov, m->iov_count, size, iov);
		count = m->iov_count;
	}
	if (total < 0 || (size_t) total != rtotal || rtotal > IVS_ATOMIC_MAX)
		return -FI_EINVAL;
	if (flags & FI_INJECT && rtotal > ep->inject_max)
		return -FI_EMSGSIZE;
	if (kind == IVS_ATOMIC_COMPARE) {
		if (to_iov(compare, ncompare, size, iov + count) != total)
			return -FI_EINVAL;
		count += ncompare;
	}
	if (kind != IVS_ATOMIC_WRITE) {
		n = to_iov(result, nresult, size, riov);
		if (n != total)
			return -FI_EINVAL;
	}
	if (ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD)
		return -FI_EAGAIN;
	peer = ivs_peer_get(ep, m->addr, &err);
	if (!peer)
		return err;
	if (flags & FI_FENCE && (!ivs_list_empty(&peer->proto.sending) || !ivs_list_empty(&peer->proto.waiting)))
		return -FI_EAGAIN;

	memset(&head, 0, sizeof(head));
	head.rma.total = rtotal;
	head.rma.data = m->data;
	head.rma.count = (uint32_t) m->rma_iov_count;
	for (i = 0; i < m->rma_iov_count; i++) {
		head.rma.rma[i].addr = m->rma_iov[i].addr;
		head.rma.rma[i].len = m->rma_iov[i].count * size;
		head.rma.rma[i].key = m->rma_iov[i].key;
	}
	head.type = (uint8_t) m->datatype;
	head.op = (uint8_t) m->op;
	head.kind = kind;
	if (!(flags & FI_INJECT) || kind != IVS_ATOMIC_WRITE || ep->cntr[IVS_CNTR_WRITE]) {
		tx = ivs_tx_get(ep, peer);
		if (!tx)
			return -FI_EAGAIN;
		if (kind != IVS_ATOMIC_WRITE && !ivs_tx_open(tx, peer, IVS_OPEN_READ)) {
			ivs_tx_put(ep, tx);
			return -FI_EAGAIN;
		}
		head.rma.id = tx->id;
		tx->op = IVS_OP_ATOMIC;
		tx->context = m->context;
		tx->flags = FI_ATOMIC | dir | (flags & FI_COMPLETION);
		tx->total = rtotal;
		tx->ack = kind == IVS_ATOMIC_WRITE;
		if (kind != IVS_ATOMIC_WRITE) {
			tx->count = nresult;
			memcpy(tx->iov, riov, nresult * sizeof(*riov));
		}
	}
	memset(&pkt, 0, sizeof(pkt));
	pkt.op = IVS_OP_ATOMIC;
	pkt.flags = (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0) | (tx && tx->ack ? IVS_F_ACK : 0);
	pkt.fixed = &head;
	pkt.fixed_len = sizeof(head);
	pkt.iov = iov;
	pkt.count = count;
	pkt.len = ivs_iov_bytes(iov, count);
	err = ivs_packet_send(peer, &pkt);
	if (err) {
		if (tx)
			ivs_tx_put(ep, tx);
		return err;
	}
	if (tx)
		ivs_ack_later(peer, tx);
	if (unlikely(ep->proto.traffic != NULL))
		ivs_traffic_count(ep, m->addr, rtotal, NULL);
	return 0;
}

static ssize_t locked(struct fid_ep *fid, uint8_t kind, const struct fi_msg_atomic *m, const struct fi_ioc *compare,
		      size_t ncompare, const struct fi_ioc *result, size_t nresult, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	ivs_lock(ep->domain);
	ret = atomic(ep, kind, m, compare, ncompare, result, nresult, flags | ep->tx_comp);
	ivs_unlock(ep->domain);
	return ret;
}

/* Runs an operation with the endpoint's flags, for calls without flags. */
static ssize_t plain(struct fid_ep *fid, uint8_t kind, const struct fi_ioc *iov, size_t count,
		     const struct fi_ioc *compare, size_t ncompare, const struct fi_ioc *result, size_t nresult,
		     fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct fi_rma_ioc rma = { addr, 0, key };
	struct fi_msg_atomic m = {
		.msg_iov = iov,
		.iov_count = count,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = type,
		.op = op,
		.context = context,
	};
	size_t i;

	if (op == FI_ATOMIC_READ)
		for (i = 0; i < nresult; i++)
			rma.count += result[i].count;
	else
		for (i = 0; i < count; i++)
			rma.count += iov[i].count;
	return locked(fid, kind, &m, compare, ncompare, result, nresult, ep->tx_flags);
}

static ssize_t at_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t dest,
			 uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void) desc;
	return plain(ep, IVS_ATOMIC_WRITE, iov, count, NULL, 0, NULL, 0, dest, addr, key, type, op, context);
}

static ssize_t at_write(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest, uint64_t addr,
			uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = { (void *) (uintptr_t) buf, count };

	(void) desc;
	return at_writev(ep, &iov, NULL, 1, dest, addr, key, type, op, context);
}

static ssize_t at_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
	return locked(ep, IVS_ATOMIC_WRITE, msg, NULL, 0, NULL, 0, flags);
}

static ssize_t at_inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t dest, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct fi_ioc iov = { (void *) (uintptr_t) buf, count };
	struct fi_rma_ioc rma = { addr, count, key };
	struct fi_msg_atomic m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = type,
		.op = op,
	};
	ssize_t ret;

	ivs_lock(ep->domain);
	ret = atomic(ep, IVS_ATOMIC_WRITE, &m, NULL, 0, NULL, 0, FI_INJECT);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t at_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
			     struct fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void) desc;
	(void) result_desc;
	return plain(ep, IVS_ATOMIC_FETCH, iov, count, NULL, 0, resultv, result_count, dest, addr, key, type, op,
		     context);
}

static ssize_t at_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
			    void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
			    enum fi_op op, void *context)
{
	struct fi_ioc iov = { (void *) (uintptr_t) buf, count };
	struct fi_ioc res = { result, count };

	(void) desc;
	(void) result_desc;
	return at_readwritev(ep, &iov, NULL, 1, &res, NULL, 1, dest, addr, key, type, op, context);
}

static ssize_t at_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *resultv,
			       void **result_desc, size_t result_count, uint64_t flags)
{
	(void) result_desc;
	return locked(ep, IVS_ATOMIC_FETCH, msg, NULL, 0, resultv, result_count, flags);
}

static ssize_t at_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
			     const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
			     struct fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void) desc;
	(void) compare_desc;
	(void) result_desc;
	return plain(ep, IVS_ATOMIC_COMPARE, iov, count, comparev, compare_count, resultv, result_count, dest, addr,
		     key, type, op, context);
}

static ssize_t at_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
			    void *compare_desc, void *result, void *result_desc, fi_addr_t dest, uint64_t addr,
			    uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = { (void *) (uintptr_t) buf, count };
	struct fi_ioc cmp = { (void *) (uintptr_t) compare, count };
	struct fi_ioc res = { result, count };

	(void) desc;
	(void) compare_desc;
	(void) result_desc;
	return at_compwritev(ep, &iov, NULL, 1, &cmp, NULL, 1, &res, NULL, 1, dest, addr, key, type, op, context);
}

static ssize_t at_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct fi_ioc *comparev,
			       void **compare_desc, size_t compare_count, struct fi_ioc *resultv, void **result_desc,
			       size_t result_count, uint64_t flags)
{
	(void) compare_desc;
	(void) result_desc;
	return locked(ep, IVS_ATOMIC_COMPARE, msg, comparev, compare_count, resultv, result_count, flags);
}

static int check(enum fi_datatype type, enum fi_op op, uint8_t kind, size_t *count)
{
	if ((unsigned int) type > 255 || (unsigned int) op > 255 ||
	    !ivs_atomic_valid((uint8_t) type, (uint8_t) op, kind))
		return -FI_EOPNOTSUPP;
	if (count)
		*count = IVS_ATOMIC_MAX / ivs_type_bytes((uint8_t) type);
	return 0;
}

static int at_writevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void) ep;
	return check(type, op, IVS_ATOMIC_WRITE, count);
}

static int at_readwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void) ep;
	return check(type, op, IVS_ATOMIC_FETCH, count);
}

static int at_compwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void) ep;
	return check(type, op, IVS_ATOMIC_COMPARE, count);
}

int ivs_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
		     uint64_t flags)
{
	uint8_t kind = flags & FI_COMPARE_ATOMIC ? IVS_ATOMIC_COMPARE
		       : flags & FI_FETCH_ATOMIC ? IVS_ATOMIC_FETCH
						 : IVS_ATOMIC_WRITE;
	int ret;

	(void) domain;
	if (flags & FI_TAGGED)
		return -FI_EOPNOTSUPP;
	ret = check(type, op, kind, &attr->count);
	if (!ret)
		attr->size = ivs_type_bytes((uint8_t) type);
	return ret;
}

struct fi_ops_atomic ivs_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic),
	.write = at_write,
	.writev = at_writev,
	.writemsg = at_writemsg,
	.inject = at_inject,
	.readwrite = at_readwrite,
	.readwritev = at_readwritev,
	.readwritemsg = at_readwritemsg,
	.compwrite = at_compwrite,
	.compwritev = at_compwritev,
	.compwritemsg = at_compwritemsg,
	.writevalid = at_writevalid,
	.readwritevalid = at_readwritevalid,
	.compwritevalid = at_compwritevalid,
};
