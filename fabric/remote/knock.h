/*
 * Is a rank on another host still there? libfabric's tcp does not say: it calls one that was killed busy for ever. Its
 * address is that of a listening socket, so a plain connection to it is refused once the process has ended.
 */
#ifndef IVS_KNOCK_H
#define IVS_KNOCK_H

#include "object/ep.h"

/* Begins to ask, or polls for the answer. Returns true if it has gone; false: it is there, or nobody knows. */
bool ivs_knock(struct ivs_peer *peer);
/* Nobody waits for the answer any more. */
void ivs_knock_end(struct ivs_peer *peer);

#endif /* IVS_KNOCK_H */
