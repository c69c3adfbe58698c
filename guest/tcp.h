/* TCP for the host: streams of kind tcp, listen and accept. */
#ifndef NM_TCP_H
#define NM_TCP_H

#include "mux.h"

/* Returns a connection to A.B.C.D:PORT or [V6]:PORT that programs may inherit, -1 with errno. It may block. */
int tcp_dial(const char *addr);

void tcp_open(struct mux *m, uint32_t id, const struct fields *h);
void listen_open(struct mux *m, uint32_t id, const struct fields *h);
void accept_open(struct mux *m, uint32_t id, const struct fields *h);

#endif
