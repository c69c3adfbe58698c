/*
 * A large message between two ranks of one VM that both of them copy: the receiver reads
 * pieces from its front, and its sender, which waits for its end anyway, writes pieces
 * from its back, each by the kernel (cma.c). A sender that is busy does not come, and the
 * receiver then reads all. Pieces are taken by a compare-and-swap of one word in the ring's
 * control lines. Every VM can write that word, at any time. So the word only says whether
 * there may be a piece left. Which piece an end copies, and when it stops, follows from its
 * own count, which never exceeds the message's pieces. A changed word can make both ends
 * copy a piece, or neither: the receiver copies what the sender's answer leaves out. It can
 * also bring a sender that comes late to write its message once more to where it was received,
 * until the receiver's ACK ends the message at the sender.
 */
#include "proto/coop_copy.h"
#include "proto/shown.h"
#include "region/siphash.h"
#include "tune.h"

#define PIECES_MAX	8192	/* of a message: a limit of the format */

#define WORD(gen, front, back) \
	((uint64_t) (gen) << 32 | (uint64_t) (front) << 16 | (uint64_t) (back))

/*
 * Takes one of count pieces from the front or the back, if one is left. own: how many this
 * end has taken so far, which is the bound that nobody else can change.
 */
static bool take(uint64_t *word, uint32_t gen, uint32_t count, uint32_t own, bool back)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	if (own >= count)
		return false;
	do {
		if (old >> 32 != gen || (old >> 16 & 0xffff) + (old & 0xffff) >= count)
			return false;
	} while (!__atomic_compare_exchange_n(word, &old, old + (back ? 1 : 1 << 16), false,
					      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	return true;
}

/* Only the receiver can have asked for it, and only this sender, to write there. */
static uint64_t check(const uint8_t *key, const struct ivs_coop *j, uint32_t slot, uint32_t epoch)
{
	struct {
		struct ivs_coop j;
		uint32_t slot, epoch;
	} data = { *j, slot, epoch };

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
static void spin_half(const uint64_t *word, uint32_t half, uint64_t begun)
{
	uint64_t now = ivs_cycles(), ours = now - begun;
	uint64_t end = now + (ours < IVS_COOP_HALF_CYCLES ? ours : IVS_COOP_HALF_CYCLES);

	while ((__atomic_load_n(word, __ATOMIC_ACQUIRE) & 0xffff) < half &&
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
	uint64_t *word = &peer->rx_ctl->coop;
	struct ivs_coop head;
	struct ivs_packet pkt = {
		.op = IVS_OP_COOP, .fixed = &head, .fixed_len = sizeof(head),
	};
	uint32_t count, front = 0;
	uint64_t begun;
	int err = 0;

	memset(&head, 0, sizeof(head));
	head.addr = (uintptr_t) msg->rx->iov[0].iov_base;
	head.len = len;
	head.id = msg->id;
	head.gen = ++peer->coop_gen;
	head.piece = piece_bytes(len);
	head.check = check(ivs_slot_key(), &head, peer->slot, peer->epoch);
	count = pieces(len, head.piece);
	__atomic_store_n(word, WORD(head.gen, 0, 0), __ATOMIC_RELEASE);
	if (ivs_packet_send(peer, &pkt))
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	begun = ivs_cycles();
	for (;;) {
		size_t from = (size_t) front * head.piece;

		if (front == (count + 1) / 2 && count <= IVS_COOP_HALVED && peer->helped)
			spin_half(word, count - front, begun);
		if (!take(word, head.gen, count, front, false))
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
	return -FI_EINPROGRESS;
}

int ivs_coop_end(struct ivs_msg *msg, size_t len, uint32_t done)
{
	uint32_t count = pieces(len, msg->piece), taken = msg->coop;
	size_t from = (size_t) (count - taken) * msg->piece;

	msg->coop = 0;
	/* More than was left to it: a changed word made both copy some. */
	if (msg->error || done >= taken)
		return msg->error;
	/* It may not write our memory, though we may read its. */
	msg->peer->alone = true;
	/* Its word came through the ring: the message may be over. */
	if (ivs_shown_find(msg->peer, msg->id, msg->total, msg->iov) != 1)
		return -FI_EIO;
	return copy(msg->peer, false, msg->rx->iov, msg->iov, from,
		    done ? (size_t) (count - done) * msg->piece : len);
}

bool ivs_coop_write(struct ivs_ep *ep, struct ivs_peer *peer, const void *fixed)
{
	struct ivs_coop head;
	struct iovec remote;
	struct ivs_tx *tx;
	uint32_t count, done = 0;
	int pid = peer->pid;

	memcpy(&head, fixed, sizeof(head));
	tx = ivs_tx_find(ep, peer, head.id);
	if (!tx || tx->response || tx->cts || tx->coop || tx->count != 1 ||
	    (tx->op != IVS_OP_TAGGED_RTS && tx->op != IVS_OP_MSG_RTS) ||
	    peer->channel != IVS_CHAN_RING || !head.piece || head.len > tx->total ||
	    !head.len || head.len / head.piece > PIECES_MAX ||
	    (pid && head.check != check(peer->key, &head, ep->slot, ep->epoch)) ||
	    /* One that was sent before: its memory may be another's by now. */
	    (int32_t) (head.gen - peer->coop_heard) <= 0)
		return false;
	peer->coop_heard = head.gen;
	tx->coop = true;
	remote.iov_base = (void *) (uintptr_t) head.addr;
	remote.iov_len = head.len;
	count = pieces(head.len, head.piece);
	while (pid && !peer->self && take(&peer->tx_ctl->coop, head.gen, count, done, true)) {
		size_t from = (size_t) (count - 1 - done) * head.piece;

		if (copy(peer, true, tx->iov, &remote, from,
			 head.len - from < head.piece ? head.len : from + head.piece))
			break;
		done++;
	}
	/* Whether it may read our memory is for itself to find out. */
	peer->pid = pid;
	ivs_ctl_send(peer, IVS_OP_COOP_END, (uint64_t) done << 32 | head.id);
	return true;
}
