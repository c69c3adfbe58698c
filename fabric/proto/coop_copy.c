/*
 * A large message between two ranks of one VM that both of them copy: the receiver reads pieces from its front, and its
 * sender, which waits for its end anyway, writes pieces from its back, each through the kernel (cma.c). A busy sender
 * does not take part, and the receiver then reads the whole message.
 *
 * Before an end copies a piece, it counts the piece in its own ledger, and then reads the other end's count. With a
 * fence between the two, of two ends that claim the same piece at once at least one notices, and does not copy it.
 * Therefore the sender never writes to a piece that the receiver has, or to any piece of a message that the receiver
 * has ended. The receiver waits for a sender that has claimed a piece, and at the end reads the pieces that neither has
 * copied. Only two messages of this protocol are sent through the region, and both are hints: the receiver's ledger
 * states where its sender may write, and the sender's ledger how much it has written.
 */
#include "proto/coop_copy.h"
#include "proto/shown.h"
#include "region/ledger.h"
#include "tune.h"

#define PIECES_MAX 8192 /* pieces of a message: a limit of the format */

/*
 * ivs_front.word: the message, by a number (gen) that differs for each one between two ranks, and the pieces that the
 * receiver has claimed. The tag of an IVS_OP_COOP has the same number, and the message's id.
 */
#define FRONT(gen, count) ((uint64_t) (gen) << 32 | (count))

/* ivs_shown.back: the pieces that the sender has claimed, and flags. */
#define BACK_COUNT(word) ((uint32_t) (word) & 0xffff)
#define BACK_OVER	 (1ULL << 32) /* it claims no more: that many are copied */
#define BACK_FAILED	 (1ULL << 33) /* the kernel refused a write */

/* Writes this end's count of pieces, then reads the other end's count and returns it. */
static uint64_t claim(uint64_t *own, uint64_t word, const uint64_t *other)
{
	__atomic_store_n(own, word, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(other, __ATOMIC_ACQUIRE);
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

/* Copies bytes [from, to) of a message that is one piece of memory at each end. Returns 0 or a negative error. */
static int copy(struct ivs_peer *peer, bool write, const struct iovec *ours, const struct iovec *theirs, size_t from,
		size_t to)
{
	struct iovec local = { (char *) ours->iov_base + from, to - from };
	struct iovec remote = { (char *) theirs->iov_base + from, to - from };

	return ivs_cma(peer, write, &local, 1, &remote, 1, to - from);
}

/*
 * Waits until the sender has claimed its half of a message, at most for as long as the receiver's half needed. Called
 * only if it helped with the last message. It may still be busy with that one.
 */
static void spin_half(const uint64_t *back, uint32_t half, uint64_t begun)
{
	uint64_t now = ivs_cycles(), ours = now - begun;
	uint64_t end = now + (ours < IVS_COOP_WAIT_MAX ? ours : IVS_COOP_WAIT_MAX);

	while (BACK_COUNT(__atomic_load_n(back, __ATOMIC_ACQUIRE)) < half && (int64_t) (ivs_cycles() - end) < 0)
		ivs_pause();
}

bool ivs_coop_fits(const struct ivs_peer *peer, size_t len)
{
	return peer->proto.pid && !peer->proto.self && !peer->proto.alone && ivs_param.cma_coop &&
	       len >= ivs_param.cma_coop && len > IVS_COOP_PIECE_MIN;
}

int ivs_coop_read(struct ivs_msg *msg, size_t len)
{
	struct ivs_peer *peer = msg->peer;
	struct ivs_ledger *ledger = ivs_slot_ledger(peer->ep->home.slot);
	const uint64_t *back = &ivs_shown_of(peer, msg->id)->back;
	struct ivs_packet pkt = { .op = IVS_OP_COOP };
	uint32_t count, gen, piece = piece_bytes(len), front = 0;
	struct ivs_front *own;
	uint64_t begun;
	int err = 0;

	if (!ledger)
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	own = &ledger->front[peer->slot];
	gen = ++peer->proto.coop_gen;
	count = pieces(len, piece);
	/* A sender that reads the entry now sees that it is incomplete. */
	__atomic_store_n(&own->word, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	own->addr = (uintptr_t) msg->rx->iov[0].iov_base;
	own->len = len;
	own->number = msg->number;
	own->piece = piece;
	__atomic_store_n(&own->word, FRONT(gen, 0), __ATOMIC_RELEASE);
	pkt.tag = FRONT(gen, msg->id);
	if (ivs_packet_send(peer, &pkt))
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	begun = ivs_cycles();
	while (front < count) {
		size_t from = (size_t) front * piece;

		if (front == (count + 1) / 2 && count <= IVS_COOP_HALVED && peer->proto.helped)
			spin_half(back, count - front, begun);
		if (front + 1 + BACK_COUNT(claim(&own->word, FRONT(gen, front + 1), back)) > count)
			break;
		front++;
		/* After an error the other pieces are only claimed, so that the sender does not copy them. */
		if (!err)
			err = copy(peer, false, msg->rx->iov, msg->iov, from, len - from < piece ? len : from + piece);
	}
	msg->error = err;
	peer->proto.helped = front != count;
	if (front == count)
		return err;
	msg->coop = count - front;
	msg->piece = piece;
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
	/* The entry has changed, because the sender has ended the message. The caller also finds this. */
	if (!holds)
		return 0;
	/* The sender may not write our memory, though we may read its memory. */
	if (back & BACK_FAILED)
		peer->proto.alone = true;
	if (msg->error || done >= count - front)
		return msg->error;
	return copy(peer, false, msg->rx->iov, msg->iov, (size_t) front * msg->piece,
		    done ? (size_t) (count - done) * msg->piece : len);
}

/* Reads the receiver's entry for message gen. Returns false if the receiver is done with that message. */
static bool asked(const volatile struct ivs_front *front, uint32_t gen, struct ivs_front *said)
{
	if (__atomic_load_n(&front->word, __ATOMIC_ACQUIRE) >> 32 != gen)
		return false;
	said->addr = front->addr;
	said->len = front->len;
	said->number = front->number;
	said->piece = front->piece;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&front->word, __ATOMIC_RELAXED) >> 32 == gen;
}

bool ivs_coop_write(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t tag)
{
	const struct ivs_ledger *theirs = peer->alive.ledger;
	uint32_t gen = (uint32_t) (tag >> 32), count, done = 0;
	struct ivs_tx *tx = ivs_tx_find(ep, peer, (uint32_t) tag);
	struct ivs_shown *shown = tx && tx->shown ? ivs_shown_entry(ep, tx) : NULL;
	const struct ivs_front *front;
	struct ivs_front said;
	struct iovec remote;
	uint64_t word, over = BACK_OVER;
	int pid = peer->proto.pid;

	if (!shown || tx->coop || tx->count != 1 || peer->channel != IVS_CHAN_RING)
		return false;
	/* Nothing to do: the call came late, or another VM made it up. */
	if (!pid || peer->proto.self || !theirs)
		return true;
	front = &theirs->front[ep->home.slot];
	if (!asked(front, gen, &said) || said.number != shown->number)
		return true;
	if (!said.piece || !said.len || said.len > tx->total || said.piece > IVS_MSG_MAX ||
	    said.len / said.piece > PIECES_MAX)
		return false;
	tx->coop = true;
	remote.iov_base = (void *) (uintptr_t) said.addr;
	remote.iov_len = said.len;
	count = pieces(said.len, said.piece);
	while (done < count) {
		size_t from = (size_t) (count - 1 - done) * said.piece;

		word = claim(&shown->back, done + 1, &front->word);
		/* The word is a later message's: the receiver is done with this one. */
		if (word >> 32 != gen || (uint32_t) word + done + 1 > count)
			break;
		if (copy(peer, true, tx->iov, &remote, from,
			 said.len - from < said.piece ? said.len : from + said.piece)) {
			over |= BACK_FAILED;
			break;
		}
		done++;
	}
	__atomic_store_n(&shown->back, over | done, __ATOMIC_RELEASE);
	/* This rank finds out separately whether it may read the peer's memory. */
	peer->proto.pid = pid;
	ivs_ctl_send(peer, IVS_OP_COOP_END, (uint32_t) tag);
	return true;
}
