/*
 * Checks whether a rank on another host still exists. libfabric's tcp does not report it: a rank that was killed
 * appears to be busy forever. Its address is that of a listening socket, so that a plain connection to it is refused
 * once the process has ended.
 */
#ifndef IVS_KNOCK_H
#define IVS_KNOCK_H

#include "object/ep.h"

/*
 * Begins to connect, or polls for the answer. Returns true if the peer has ended, false if it exists or that is not
 * known.
 */
bool ivs_knock(struct ivs_peer *peer);
/* Ends a connection attempt in progress. */
void ivs_knock_end(struct ivs_peer *peer);

#endif /* IVS_KNOCK_H */
