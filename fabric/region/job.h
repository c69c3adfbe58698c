/* The job that this process belongs to. */
#ifndef IVS_JOB_H
#define IVS_JOB_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a hash of the job's name, or 0 if it has none. */
uint64_t ivs_job_hash(void);

/* Returns true if the user named the job, so that a region of another job is refused. */
bool ivs_job_strict(void);

#endif
