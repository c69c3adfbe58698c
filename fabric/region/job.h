/* Which job this process belongs to. */
#ifndef IVS_JOB_H
#define IVS_JOB_H

#include <stdbool.h>
#include <stdint.h>

/* A hash of the job's name; 0: nobody says one. */
uint64_t ivs_job_hash(void);

/* Was the job named by the user, so that a region of another one is refused? */
bool ivs_job_strict(void);

#endif
