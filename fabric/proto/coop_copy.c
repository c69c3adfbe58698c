/*
 * A large message between two ranks of one VM that both of them copy: the receiver reads
 * pieces from its front, and its sender, which waits for its end anyway, writes pieces
 * from its back, each by the kernel (cma.c). A sender that is busy does not come, and the
 * receiver then reads all.
 *
 * Before an end copies a piece, it counts the piece in its own ledger, and then reads the other end's
 * count. Between the two is a fence: of two ends that take the same piece at once at least one sees it,
 * and leaves the piece alone. So the sender writes to no piece that the receiver has, nor to any of a
 * message that the receiver has ended. The receiver waits for a sender that has taken a piece, and reads at
 * the end what neither has copied. Only two messages of this go through the region. The receiver's call to
 * the sender is signed. The sender's answer that it is done is a hint: the ledger has the count.
 */
#include "proto/coop_copy.h"
#include "proto/shown.h"
#include "region/ledger.h"
#include "region/siphash.h"
#include "tune.h"

#define PIECES_MAX	8192	/* of a message: a limit of the format */
#define HALF_CYCLES_MAX	((uint64_t) 1 << 20)	/* of waiting for a sender that may have stopped: half a millisecond at 2 GHz */

/* ivs_ledger.front: the message's number (ivs_coop.gen), and the pieces that the receiver has taken. */
#define FRONT(gen, count) ((uint64_t) (gen) << 32 | (count))

/* ivs_shown.back: the pieces that the sender has taken, and whether it takes no more. */
#define BACK_COUNT(word) ((uint32_t) (word) & 0xffff)
#define BACK_OVER	(1ULL << 32)	/* no more: that many are copied */
#define BACK_FAILED	(1ULL << 33)	/* since the kernel let it not */

/* Writes this end's count of pieces, and reads the other end's then. */
static uint64_t claim(uint64_t *own, uint64_t word, const uint64_t *other)
{
	__atomic_store_n(own, word, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(other, __ATOMIC_ACQUIRE);
}

/* Only the receiver can have asked for it, and only this sender, to write there, and that for this message. */
static uint64_t check(const uint8_t *key, const struct ivs_coop *j, uint32_t slot, uint32_t epoch, uint64_t number)
{
	struct {
		struct ivs_coop j;
		uint32_t slot, epoch;
		uint64_t number;
	} data = { *j, slot, epoch, number };

	data.j.check = 0;
	return ivs_siphash(key, &data, sizeof(data));
}

static uint32_t piece_bytes(size_t len)
{
	size_t half = (len / 2 + 4095) & ~(size_t) 4095;
	size_t least = (len / PIECES_MAX + 4095) & ~(size_t) 4095;

	if (half < IVS_COOP_PIECE_MIN)
		half = IVS_COOP_PIECE_MIN;
	if (half > IVS_COOP_PIECE_MAX)
		half = IVS_COOP_PIECE_MAX;
	return (uint32_t) (half < least ? least : half);
}

static inline uint32_t pieces(size_t len, size_t piece)
{
	return (uint32_t) ((len + piece - 1) / piece);
}

/* Copies bytes [from, to) of a message of one piece of memory at each end. */
static int copy(struct ivs_peer *peer, bool write, const struct iovec *ours,
		const struct iovec *theirs, size_t from, size_t to)
{
	struct iovec local = { (char *) ours->iov_base + from, to - from };
	struct iovec remote = { (char *) theirs->iov_base + from, to - from };

	return ivs_cma(peer, write, &local, 1, &remote, 1, to - from);
}

/*
 * Waits until the sender has taken its half of a message, for as long as ours took, if it
 * has come for the last one. It may be busy with that still.
 */
static void spin_half(const uint64_t *back, uint32_t half, uint64_t begun)
{
	uint64_t now = ivs_cycles(), ours = now - begun;
	uint64_t end = now + (ours < HALF_CYCLES_MAX ? ours : HALF_CYCLES_MAX);

	while (BACK_COUNT(__atomic_load_n(back, __ATOMIC_ACQUIRE)) < half &&
	       (int64_t) (ivs_cycles() - end) < 0)
		ivs_pause();
}

bool ivs_coop_fits(const struct ivs_peer *peer, size_t len)
{
	return peer->pid && !peer->self && !peer->alone && ivs_param.cma_coop &&
	       len >= ivs_param.cma_coop && len > IVS_COOP_PIECE_MIN;
}

int ivs_coop_read(struct ivs_msg *msg, size_t len)
{
	struct ivs_peer *peer = msg->peer;
	struct ivs_ledger *ledger = ivs_slot_ledger(peer->ep->slot);
	const uint64_t *back = &ivs_shown_of(peer, msg->id)->back;
	struct ivs_coop head;
	struct ivs_packet pkt = {
		.op = IVS_OP_COOP, .fixed = &head, .fixed_len = sizeof(head),
	};
	uint32_t count, front = 0;
	uint64_t begun, *own;
	int err = 0;

	if (!ledger)
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	own = &ledger->front[peer->slot].word;
	memset(&head, 0, sizeof(head));
	head.addr = (uintptr_t) msg->rx->iov[0].iov_base;
	head.len = len;
	head.id = msg->id;
	head.gen = ++peer->coop_gen;
	head.piece = piece_bytes(len);
	head.check = check(ivs_slot_key(), &head, peer->slot, peer->epoch, msg->number);
	count = pieces(len, head.piece);
	__atomic_store_n(own, FRONT(head.gen, 0), __ATOMIC_RELEASE);
	if (ivs_packet_send(peer, &pkt))
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	begun = ivs_cycles();
	while (front < count) {
		size_t from = (size_t) front * head.piece;

		if (front == (count + 1) / 2 && count <= IVS_COOP_HALVED && peer->helped)
			spin_half(back, count - front, begun);
		if (front + 1 + BACK_COUNT(claim(own, FRONT(head.gen, front + 1), back)) > count)
			break;
		front++;
		/* After an error the other pieces are only taken, so that the sender does not. */
		if (!err)
			err = copy(peer, false, msg->rx->iov, msg->iov, from,
				   len - from < head.piece ? len : from + head.piece);
	}
	msg->error = err;
	peer->helped = front != count;
	if (front == count)
		return err;
	msg->coop = count - front;
	msg->piece = head.piece;
	return ivs_coop_end(msg, len);
}

int ivs_coop_end(struct ivs_msg *msg, size_t len)
{
	struct ivs_peer *peer = msg->peer;
	uint64_t back = __atomic_load_n(&ivs_shown_of(peer, msg->id)->back, __ATOMIC_ACQUIRE);
	uint32_t count = pieces(len, msg->piece), front = count - msg->coop, done = BACK_COUNT(back);
	bool holds = ivs_shown_holds(peer, msg->id, msg->number);

	if (holds && !(back & BACK_OVER))
		return -FI_EINPROGRESS;
	msg->coop = 0;
	/* It is not the message's any more, as the caller will find, too. */
	if (!holds)
		return 0;
	/* It may not write our memory, though we may read its. */
	if (back & BACK_FAILED)
		peer->alone = true;
	if (msg->error || done >= count - front)
		return msg->error;
	return copy(peer, false, msg->rx->iov, msg->iov, (size_t) front * msg->piece,
		    done ? (size_t) (count - done) * msg->piece : len);
}

bool ivs_coop_write(struct ivs_ep *ep, struct ivs_peer *peer, const void *fixed)
{
	const struct ivs_ledger *theirs;
	struct ivs_coop head;
	struct iovec remote;
	struct ivs_shown *shown;
	struct ivs_tx *tx;
	uint32_t count, done = 0;
	uint64_t front, over = BACK_OVER;
	int pid = peer->pid;

	memcpy(&head, fixed, sizeof(head));
	tx = ivs_tx_find(ep, peer, head.id);
	shown = tx && tx->shown ? ivs_shown_entry(ep, tx) : NULL;
	if (!shown || tx->coop || tx->count != 1 || peer->channel != IVS_CHAN_RING || !head.piece ||
	    head.len > tx->total || !head.len || head.len / head.piece > PIECES_MAX ||
	    head.check != check(peer->key, &head, ep->slot, ep->epoch, shown->number) ||
	    /* One that was sent before: its memory may be another's by now. */
	    (int32_t) (head.gen - peer->coop_heard) <= 0)
		return false;
	peer->coop_heard = head.gen;
	tx->coop = true;
	theirs = ivs_peer_ledger(peer);
	remote.iov_base = (void *) (uintptr_t) head.addr;
	remote.iov_len = head.len;
	count = pieces(head.len, head.piece);
	while (pid && !peer->self && theirs && done < count) {
		size_t from = (size_t) (count - 1 - done) * head.piece;

		front = claim(&shown->back, done + 1, &theirs->front[ep->slot].word);
		/* Of a later message: the receiver takes no more of this one. */
		if (front >> 32 != head.gen || (uint32_t) front + done + 1 > count)
			break;
		if (copy(peer, true, tx->iov, &remote, from,
			 head.len - from < head.piece ? head.len : from + head.piece)) {
			over |= BACK_FAILED;
			break;
		}
		done++;
	}
	__atomic_store_n(&shown->back, over | done, __ATOMIC_RELEASE);
	/* Whether it may read our memory is for itself to find out. */
	peer->pid = pid;
	ivs_ctl_send(peer, IVS_OP_COOP_END, head.id);
	return true;
}
