/* What nearmetal does for a job as root: lends VFs, keeps huge pages. */
#ifndef NM_ASROOT_H_
#define NM_ASROOT_H_

#include <stddef.h>

#include "settings.h"
#include "values.h"

/*
 * Run nearmetal COMMAND WORDS..., NULL behind the last, and read what it says into out. Returns 0, or -1
 * and a message: the first line of what it said.
 */
int nm_asroot(const struct nm_settings *s, const char *command, char *const *words, char *out, size_t size,
	      char message[NM_MESSAGE_MAX]);

/* The same for what jobs have that this host no longer knows, after a boot. */
void nm_asroot_sweep(const struct nm_settings *s, const char *command);

#endif /* NM_ASROOT_H_ */
