/*
 * Messages that a neighbour may read from their sender's memory. The ring, which every VM can write, names the message;
 * its place is in the sender's ledger, which only its neighbours can read and nobody else can write. Therefore nothing
 * of a rank's memory is read except what it is sending to the reader.
 *
 * The answers are also sent through the ring. Each contains a value that is only in the ledger: the message's number,
 * which cannot be guessed. When other VMs see it in the ring, it has lost its use.
 */
#ifndef IVS_SHOWN_H
#define IVS_SHOWN_H

#include "proto/proto.h"

struct ivs_shown;

/*
 * Sender: lets peer read tx's memory, count pieces at iov, until ivs_shown_end(). Returns false if that is impossible
 * here, and the message has to be sent in another way.
 */
bool ivs_shown_begin(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx, const struct iovec *iov,
		     size_t count);
void ivs_shown_end(struct ivs_ep *ep, struct ivs_tx *tx);
/*
 * Ends all shown messages of an endpoint that closes, while its slot is still its own. forked: this is a child of the
 * endpoint's process, which has neither the ledger nor anything to withdraw.
 */
void ivs_shown_close(struct ivs_ep *ep, bool forked);
/*
 * Sender: returns the message that peer has answered with op (IVS_OP_SHOWN_ACK, IVS_OP_SHOWN_CTS) and this tag. Returns
 * NULL if no such message is shown to peer, or the answer is not the peer's.
 */
struct ivs_tx *ivs_shown_answered(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint64_t answer);
/* Sender: returns the entry of tx in its ledger. */
struct ivs_shown *ivs_shown_entry(struct ivs_ep *ep, const struct ivs_tx *tx);

/*
 * Receiver: finds the place of the message id, of total bytes, in the peer's memory. Fills iov (IVS_IOV_MAX) and the
 * message's number, and returns the count of pieces. Returns 0 if the peer's ledger cannot be read here, or -FI_EACCES
 * if it shows no such message to this rank.
 */
int ivs_shown_find(struct ivs_peer *peer, uint32_t id, size_t total, struct iovec *iov, uint64_t *number);
/* Receiver: returns true if the peer still shows the message. Then the bytes read before were the message. */
bool ivs_shown_holds(struct ivs_peer *peer, uint32_t id, uint64_t number);
/* Receiver: returns the entry of the message in its sender's ledger, which ivs_shown_find() has read. */
const struct ivs_shown *ivs_shown_of(struct ivs_peer *peer, uint32_t id);
/*
 * Receiver: returns the tag of an answer. number 0: the sender's ledger cannot be read, and the answer is signed
 * instead. A signed answer is valid for each message with this id, but then all messages are sent in pieces through the
 * region anyway.
 */
uint64_t ivs_shown_answer(const struct ivs_peer *peer, uint8_t op, uint32_t id, uint64_t number);

#endif /* IVS_SHOWN_H */
