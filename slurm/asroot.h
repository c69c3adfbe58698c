/* Operations that nearmetal executes for a job as root: it leases VFs and reserves huge pages. */
#ifndef NM_ASROOT_H_
#define NM_ASROOT_H_

#include <stdbool.h>
#include <stddef.h>

#include "settings.h"
#include "state.h"
#include "values.h"

/*
 * Run nearmetal COMMAND WORDS..., with NULL after the last word, and read its output into out. Returns 0, or its exit
 * status, or -1 if it has none; on failure, message is the first line of the output.
 */
int nm_asroot(const struct nm_settings *s, const char *command, char *const *words, char *out, size_t size,
	      char message[NM_MESSAGE_MAX]);

/*
 * Run nearmetal COMMAND return, COMMAND being slurm-vf or slurm-pages: return the job's resources of that kind,
 * regardless of its request. Returns as nm_asroot(), and 0 if the job has none.
 */
int nm_asroot_return(const struct nm_settings *s, const char *command, const struct nm_job *job,
		     char message[NM_MESSAGE_MAX]);

/* Whether this host may have journals of changes, from which VFs and huge pages are returned (internal/host/change). */
bool nm_asroot_journals(const struct nm_settings *s);

#endif /* NM_ASROOT_H_ */
