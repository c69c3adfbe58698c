/*
 * Messages that a neighbour may read from their sender's memory. The ring, which every VM can write,
 * says which one; where it lies stands in the sender's ledger, which its neighbours alone can read
 * and nobody else can write. So nothing of a rank's memory is read but what it is sending to the reader.
 *
 * The answers come through the ring, too. Each says what stands in the ledger only: the message's number,
 * which nobody can guess. When other VMs see it in the ring, it is of no use any more.
 */
#ifndef IVS_SHOWN_H
#define IVS_SHOWN_H

#include "proto/proto.h"

struct ivs_shown;

/*
 * Sender: lets peer read tx's memory, count pieces at iov, until ivs_shown_end(). false: it cannot
 * be said here, and the message has to go another way.
 */
bool ivs_shown_begin(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx, const struct iovec *iov,
		     size_t count);
void ivs_shown_end(struct ivs_ep *ep, struct ivs_tx *tx);
/*
 * Ends all of an endpoint's, which closes, while its slot is its own. forked: we are a child of its
 * process, which has neither the ledger nor anything to take back.
 */
void ivs_shown_close(struct ivs_ep *ep, bool forked);
/*
 * Sender: the message that peer has answered with op (IVS_OP_SHOWN_ACK, IVS_OP_SHOWN_CTS) and this tag. NULL:
 * it shows no such message to peer, or the answer is somebody else's.
 */
struct ivs_tx *ivs_shown_answered(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint64_t answer);
/* Sender: the entry of tx in its ledger. */
struct ivs_shown *ivs_shown_entry(struct ivs_ep *ep, const struct ivs_tx *tx);

/*
 * Receiver: where peer's message id, of total bytes, lies in its memory: fills iov (IVS_IOV_MAX) and
 * the message's number, and returns the count of pieces. 0: its ledger cannot be read here.
 * -FI_EACCES: it shows us no such message.
 */
int ivs_shown_find(struct ivs_peer *peer, uint32_t id, size_t total, struct iovec *iov, uint64_t *number);
/* Receiver: does it show the message still? What was read before is the message then. */
bool ivs_shown_holds(struct ivs_peer *peer, uint32_t id, uint64_t number);
/* Receiver: the entry of the message in its sender's ledger, which ivs_shown_find() has read. */
const struct ivs_shown *ivs_shown_of(struct ivs_peer *peer, uint32_t id);
/*
 * Receiver: the tag of an answer. number 0: the sender's ledger cannot be read. Then the answer is signed. It
 * holds for each message with this id, but then all messages come in pieces through the region anyway.
 */
uint64_t ivs_shown_answer(const struct ivs_peer *peer, uint8_t op, uint32_t id, uint64_t number);

#endif /* IVS_SHOWN_H */
