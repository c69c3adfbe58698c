#include "proto/shown.h"
#include "region/ledger.h"

/* The entry of the message with this id, or NULL. */
static struct ivs_shown *entry(struct ivs_ledger *ledger, uint32_t id)
{
	return ledger && (id & 0xffff) < IVS_SHOWN_MAX ? &ledger->shown[id & 0xffff] : NULL;
}

bool ivs_shown_begin(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx,
		     const struct iovec *iov, size_t count)
{
	struct ivs_shown *e = entry(ivs_slot_ledger(ep->slot), tx->id);
	size_t i, n = 0;

	if (!e || count > IVS_IOV_MAX)
		return false;
	/* A reader that comes meanwhile sees that it is not whole. */
	__atomic_store_n(&e->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	e->slot = peer->slot;
	e->epoch = peer->epoch;
	for (i = 0; i < count; i++) {
		if (!iov[i].iov_len)
			continue;
		e->iov[n].addr = (uintptr_t) iov[i].iov_base;
		e->iov[n++].len = iov[i].iov_len;
	}
	/* Of one piece or two only the first line is touched. */
	if (n < IVS_IOV_MAX)
		e->iov[n].len = 0;
	__atomic_store_n(&e->number, ++ep->shown_count << 32 | tx->id, __ATOMIC_RELEASE);
	tx->shown = true;
	return true;
}

void ivs_shown_end(struct ivs_ep *ep, struct ivs_tx *tx)
{
	struct ivs_shown *e = entry(ivs_slot_ledger(ep->slot), tx->id);

	tx->shown = false;
	if (e)
		__atomic_store_n(&e->number, 0, __ATOMIC_RELEASE);
}

void ivs_shown_close(struct ivs_ep *ep, bool forked)
{
	size_t i;

	for (i = 0; i < ep->tx_table_size; i++) {
		struct ivs_tx *tx = ep->tx_table[i];

		if (!tx || !tx->shown)
			continue;
		if (forked)
			tx->shown = false;
		else
			ivs_shown_end(ep, tx);
	}
}

int ivs_shown_find(struct ivs_peer *peer, uint32_t id, size_t total, struct iovec *iov)
{
	const struct ivs_ledger *ledger = ivs_peer_ledger(peer);
	const volatile struct ivs_shown *e;
	uint64_t number;
	size_t sum = 0;
	int count;

	if (!ledger)
		return 0;
	e = entry((struct ivs_ledger *) (uintptr_t) ledger, id);
	if (!e)
		return -FI_EACCES;
	number = __atomic_load_n(&e->number, __ATOMIC_ACQUIRE);
	if (!number || (uint32_t) number != id || e->slot != peer->ep->slot || e->epoch != peer->ep->epoch)
		return -FI_EACCES;
	for (count = 0; count < IVS_IOV_MAX; count++) {
		iov[count].iov_len = e->iov[count].len;
		if (!iov[count].iov_len)
			break;
		if (iov[count].iov_len > IVS_MSG_MAX)
			return -FI_EACCES;
		iov[count].iov_base = (void *) (uintptr_t) e->iov[count].addr;
		sum += iov[count].iov_len;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&e->number, __ATOMIC_RELAXED) != number || sum != total || !count)
		return -FI_EACCES;
	return count;
}
