#include "proto/shown.h"
#include "region/ledger.h"
#include "region/siphash.h"

/* Returns the entry of the message with this id, or NULL. */
static struct ivs_shown *entry(struct ivs_ledger *ledger, uint32_t id)
{
	return ledger && (id & 0xffff) < IVS_SHOWN_MAX ? &ledger->shown[id & 0xffff] : NULL;
}

/* Returns the predictable part of the number of the message with this id. */
static uint64_t of_id(uint32_t id)
{
	return id >> 16;
}

struct ivs_shown *ivs_shown_entry(struct ivs_ep *ep, const struct ivs_tx *tx)
{
	return entry(ivs_slot_ledger(ep->home.slot), tx->id);
}

bool ivs_shown_begin(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx, const struct iovec *iov, size_t count)
{
	struct ivs_shown *e = ivs_shown_entry(ep, tx);
	size_t i, n = 0;

	if (unlikely(!e || count > IVS_IOV_MAX || !ivs_numbers_ready(&ep->proto.shown)))
		return false;
	/* A reader that comes now sees that the entry is incomplete. */
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
	/* For one piece or two a reader needs only the first line. */
	if (n < IVS_IOV_MAX)
		e->iov[n].len = 0;
	e->back = 0;
	/* The number is never 0. */
	__atomic_store_n(&e->number, ivs_numbers_take(&ep->proto.shown) << 16 | 1ULL << 63 | of_id(tx->id),
			 __ATOMIC_RELEASE);
	tx->shown = true;
	return true;
}

void ivs_shown_end(struct ivs_ep *ep, struct ivs_tx *tx)
{
	struct ivs_shown *e = ivs_shown_entry(ep, tx);

	tx->shown = false;
	if (e)
		__atomic_store_n(&e->number, 0, __ATOMIC_RELEASE);
}

void ivs_shown_close(struct ivs_ep *ep, bool forked)
{
	size_t i;

	for (i = 0; i < ep->proto.tx_table_size; i++) {
		struct ivs_tx *tx = ep->proto.tx_table[i];

		if (!tx || !tx->shown)
			continue;
		if (forked)
			tx->shown = false;
		else
			ivs_shown_end(ep, tx);
	}
}

/* Returns the answer with this hash or number. */
static uint64_t answer(uint64_t hash, uint32_t id)
{
	return (hash & ~0xffffULL) | (id & 0xffff);
}

/*
 * Returns the answer of a receiver with this key to the sender in slot and epoch. All hashes under such a key are of
 * data of different lengths (slot.c, identity.c, mr.c), so that none can be mistaken for another.
 */
static uint64_t signed_answer(const uint8_t *key, uint8_t op, uint32_t id, uint32_t slot, uint32_t epoch)
{
	uint32_t data[5] = { op, id, slot, epoch };

	return answer(ivs_siphash(key, data, sizeof(data)), id);
}

uint64_t ivs_shown_answer(const struct ivs_peer *peer, uint8_t op, uint32_t id, uint64_t number)
{
	return number ? answer(number, id) : signed_answer(ivs_slot_key(), op, id, peer->slot, peer->epoch);
}

struct ivs_tx *ivs_shown_answered(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint64_t tag)
{
	struct ivs_tx *tx = (tag & 0xffff) < ep->proto.tx_table_size ? ep->proto.tx_table[tag & 0xffff] : NULL;

	if (!tx || tx->peer != peer || !tx->shown)
		return NULL;
	return tag == answer(ivs_shown_entry(ep, tx)->number, tx->id) ||
			       tag == signed_answer(peer->alive.key, op, tx->id, ep->home.slot, ep->home.epoch)
		       ? tx
		       : NULL;
}

const struct ivs_shown *ivs_shown_of(struct ivs_peer *peer, uint32_t id)
{
	return entry((struct ivs_ledger *) (uintptr_t) peer->alive.ledger, id);
}

int ivs_shown_find(struct ivs_peer *peer, uint32_t id, size_t total, struct iovec *iov, uint64_t *number_out)
{
	const volatile struct ivs_shown *e;
	uint64_t number;
	size_t sum = 0;
	int count;

	*number_out = 0;
	if (!peer->alive.ledger)
		return 0;
	e = ivs_shown_of(peer, id);
	if (!e)
		return -FI_EACCES;
	number = __atomic_load_n(&e->number, __ATOMIC_ACQUIRE);
	if (!number || (number & 0xffff) != of_id(id) || e->slot != peer->ep->home.slot ||
	    e->epoch != peer->ep->home.epoch)
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
	*number_out = number;
	return count;
}

bool ivs_shown_holds(struct ivs_peer *peer, uint32_t id, uint64_t number)
{
	const struct ivs_shown *e = ivs_shown_of(peer, id);

	return e && __atomic_load_n(&e->number, __ATOMIC_ACQUIRE) == number;
}
