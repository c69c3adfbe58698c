/* What nearmetal does for a job as root: leases VFs, keeps huge pages. */
#ifndef NM_ASROOT_H_
#define NM_ASROOT_H_

#include <stdbool.h>
#include <stddef.h>

#include "settings.h"
#include "state.h"
#include "values.h"

/*
 * Run nearmetal COMMAND WORDS..., NULL behind the last, and read what it says into out. Returns 0, or
 * its exit status, or -1 where it has none, and a message: the first line of what it said.
 */
int nm_asroot(const struct nm_settings *s, const char *command, char *const *words, char *out, size_t size,
	      char message[NM_MESSAGE_MAX]);

/*
 * Run nearmetal COMMAND return: take back what the job has of that kind, slurm-vf or slurm-pages, whatever its request says. Returns
 * as nm_asroot(), 0 also where it has none.
 */
int nm_asroot_return(const struct nm_settings *s, const char *command, const struct nm_job *job,
		     char message[NM_MESSAGE_MAX]);

/* Whether this host may have journals of changes, from which VFs and huge pages are given back (internal/host/change). */
bool nm_asroot_journals(const struct nm_settings *s);

#endif /* NM_ASROOT_H_ */
