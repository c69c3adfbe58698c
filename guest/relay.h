/* Local clients of the agent (nearmetal-rsh): their execs are sent to the host, which passes them to other VMs. */
#ifndef NM_RELAY_H
#define NM_RELAY_H

#include "mux.h"

#define RELAY_SOCKET "/run/nearmetal/agent.sock"

/* Listens on path for clients whose streams are opened on host. */
void relay_listen(const char *path, struct mux *host);

#endif
