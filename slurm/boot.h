/* Starting a job's VMs. */
#ifndef NM_BOOT_H_
#define NM_BOOT_H_

#include <slurm/spank.h>

#include "settings.h"
#include "state.h"

/*
 * Start the job's VMs as its user, and wait until they are ready or have failed. task is the extern step's own
 * process, or -1. result receives the text of NM_FILE_RESULT.
 */
void nm_boot(spank_t sp, const struct nm_settings *s, const struct nm_job *job, pid_t task, char result[NM_RESULT_MAX]);

#endif /* NM_BOOT_H_ */
