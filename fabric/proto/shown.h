/*
 * Messages that a neighbour may read from their sender's memory. The ring, which every VM can write,
 * says which one; where it lies stands in the sender's ledger, which its neighbours alone can read
 * and nobody else can write. So nothing of a rank's memory is read but what it is sending to the reader.
 */
#ifndef IVS_SHOWN_H
#define IVS_SHOWN_H

#include "proto/proto.h"

/*
 * Sender: lets peer read tx's memory, count pieces at iov, until ivs_shown_end(). false: it cannot
 * be said here, and the message has to go another way.
 */
bool ivs_shown_begin(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx,
		     const struct iovec *iov, size_t count);
void ivs_shown_end(struct ivs_ep *ep, struct ivs_tx *tx);
/*
 * Ends all of an endpoint's, which closes, while its slot is its own. forked: we are a child of its
 * process, which has neither the ledger nor anything to take back.
 */
void ivs_shown_close(struct ivs_ep *ep, bool forked);

/*
 * Receiver: where peer's message id, of total bytes, lies in its memory: fills iov (IVS_IOV_MAX) and
 * returns the number of pieces. 0: its ledger cannot be read here. -FI_EACCES: it shows us no such message.
 */
int ivs_shown_find(struct ivs_peer *peer, uint32_t id, size_t total, struct iovec *iov);

#endif /* IVS_SHOWN_H */
