/*
 * A large message between two ranks of one VM that both of them copy: the receiver reads
 * pieces from its front, and its sender, which waits for its end anyway, writes pieces
 * from its back, each by the kernel (cma.c). A sender that is busy does not come, and the
 * receiver then reads all. Pieces are taken by a compare-and-swap of one word in the ring's
 * control lines. What others write to that word can make a piece be copied twice, or by
 * nobody until the sender's answer is there, and nothing else: each end uses only its own
 * count of what it took.
 */
#include "joint.h"
#include "region.h"
#include "siphash.h"

/* Bytes of a piece: half of a message, one for each end, up to what the other may be waited for. */
#define PIECE_MIN	((size_t) 32 << 10)
#define PIECE_MAX	((size_t) 256 << 10)
#define PIECES_MAX	8192

/*
 * A message of so few pieces is cut into equal halves: where many of them go from and to the
 * same memory, each end finds its half in its own cache. If the receiver takes a piece of the
 * sender's, both have to fetch what the other has, and it stays like that: 14 to 17 GB/s
 * instead of 25 to 31 (256 KiB, many in a row).
 */
#define HALVED		4
#define HALF_CYCLES	((uint64_t) 1 << 20)	/* of waiting for it, at most: half a millisecond */

#define WORD(gen, front, back) \
	((uint64_t) (gen) << 32 | (uint64_t) (front) << 16 | (uint64_t) (back))

/* Takes one of count pieces from the front or the back, if one is left. */
static bool take(uint64_t *word, uint32_t gen, uint32_t count, bool back)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	do {
		if (old >> 32 != gen || (old >> 16 & 0xffff) + (old & 0xffff) >= count)
			return false;
	} while (!__atomic_compare_exchange_n(word, &old, old + (back ? 1 : 1 << 16), false,
					      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	return true;
}

/* Only the receiver can have asked for it, and only this sender, to write there. */
static uint64_t check(const uint8_t *key, const struct ivs_joint *j, uint32_t slot, uint32_t epoch)
{
	struct {
		struct ivs_joint j;
		uint32_t slot, epoch;
	} data = { *j, slot, epoch };

	data.j.check = 0;
	return ivs_siphash(key, &data, sizeof(data));
}

static uint32_t piece_bytes(size_t len)
{
	size_t half = (len / 2 + 4095) & ~(size_t) 4095;
	size_t least = (len / PIECES_MAX + 4095) & ~(size_t) 4095;

	if (half < PIECE_MIN)
		half = PIECE_MIN;
	if (half > PIECE_MAX)
		half = PIECE_MAX;
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
static void await_half(const uint64_t *word, uint32_t half, uint64_t begun)
{
	uint64_t now = ivs_cycles(), ours = now - begun;
	uint64_t end = now + (ours < HALF_CYCLES ? ours : HALF_CYCLES);

	while ((__atomic_load_n(word, __ATOMIC_ACQUIRE) & 0xffff) < half &&
	       (int64_t) (ivs_cycles() - end) < 0)
		ivs_pause();
}

bool ivs_joint_fits(const struct ivs_peer *peer, size_t len)
{
	return peer->pid && !peer->self && !peer->alone && ivs_param.cma_joint &&
	       len >= ivs_param.cma_joint && len > PIECE_MIN;
}

int ivs_joint_read(struct ivs_msg *msg, size_t len)
{
	struct ivs_peer *peer = msg->peer;
	uint64_t *word = &peer->rx_ctl->joint;
	struct ivs_joint head;
	struct ivs_packet pkt = {
		.op = IVS_OP_JOINT, .fixed = &head, .fixed_len = sizeof(head),
	};
	uint32_t count, front = 0;
	uint64_t begun;
	int err = 0;

	memset(&head, 0, sizeof(head));
	head.addr = (uintptr_t) msg->rx->iov[0].iov_base;
	head.len = len;
	head.id = msg->id;
	head.gen = ++peer->joint_gen;
	head.piece = piece_bytes(len);
	head.check = check(ivs_slot_key(), &head, peer->slot, peer->epoch);
	count = pieces(len, head.piece);
	__atomic_store_n(word, WORD(head.gen, 0, 0), __ATOMIC_RELEASE);
	if (ivs_packet_send(peer, &pkt))
		return copy(peer, false, msg->rx->iov, msg->iov, 0, len);
	begun = ivs_cycles();
	for (;;) {
		size_t from = (size_t) front * head.piece;

		if (front == (count + 1) / 2 && count <= HALVED && peer->helped)
			await_half(word, count - front, begun);
		if (!take(word, head.gen, count, false))
			break;
		front++;
		/* After an error the rest is only taken, so that nobody else does. */
		if (!err)
			err = copy(peer, false, msg->rx->iov, msg->iov, from,
				   len - from < head.piece ? len : from + head.piece);
	}
	msg->error = err;
	peer->helped = front != count;
	if (front == count)
		return err;
	msg->joint = count - front;
	msg->piece = head.piece;
	return -FI_EINPROGRESS;
}

int ivs_joint_end(struct ivs_msg *msg, size_t len, uint32_t done)
{
	uint32_t count = pieces(len, msg->piece), taken = msg->joint;
	size_t from = (size_t) (count - taken) * msg->piece;

	msg->joint = 0;
	if (msg->error || done == taken)
		return msg->error;
	/* It may not write our memory, though we may read its. */
	msg->peer->alone = true;
	return copy(msg->peer, false, msg->rx->iov, msg->iov, from,
		    done ? (size_t) (count - done) * msg->piece : len);
}

bool ivs_joint_write(struct ivs_ep *ep, struct ivs_peer *peer, const void *fixed)
{
	struct ivs_joint head;
	struct iovec remote;
	struct ivs_tx *tx;
	uint32_t count, done = 0;
	int pid = peer->pid;

	memcpy(&head, fixed, sizeof(head));
	tx = ivs_tx_find(ep, peer, head.id);
	if (!tx || tx->response || tx->cleared || tx->joint || tx->count != 1 ||
	    (tx->op != IVS_OP_TAGGED_PULL && tx->op != IVS_OP_MSG_PULL) ||
	    peer->channel != IVS_CHAN_RING || !head.piece || head.len > tx->total ||
	    !head.len || head.len / head.piece > PIECES_MAX ||
	    (pid && head.check != check(peer->key, &head, ep->slot, ep->epoch)))
		return false;
	tx->joint = true;
	remote.iov_base = (void *) (uintptr_t) head.addr;
	remote.iov_len = head.len;
	count = pieces(head.len, head.piece);
	while (pid && !peer->self && take(&peer->tx_ctl->joint, head.gen, count, true)) {
		size_t from = (size_t) (count - 1 - done) * head.piece;

		if (copy(peer, true, tx->iov, &remote, from,
			 head.len - from < head.piece ? head.len : from + head.piece))
			break;
		done++;
	}
	/* Whether it may read our memory is for itself to find out. */
	peer->pid = pid;
	ivs_ctl_send(peer, IVS_OP_JOINED, (uint64_t) done << 32 | head.id);
	return true;
}
