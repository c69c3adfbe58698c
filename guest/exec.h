/* Programs run for the host: streams of kind exec, push, pull and written. */
#ifndef NM_EXEC_H
#define NM_EXEC_H

#include "mux.h"

/* Name of the VM, for messages; "" if there is none. */
extern const char *vm_name;

void exec_open(struct mux *m, uint32_t id, const struct fields *h);
void push_open(struct mux *m, uint32_t id, const struct fields *h);
void pull_open(struct mux *m, uint32_t id, const struct fields *h);
void written_stream_open(struct mux *m, uint32_t id, const struct fields *h);
/* Records the upper directory of the root's overlay, for streams of kind written. */
void written_upper(const char *path);
/* Reaps processes that have ended; to be called on SIGCHLD. */
void exec_reap(void);
/* Kills at once all processes that execs have started. */
void exec_kill_all(void);

#endif
