/* Handing a job's VFs to its user: `nearmetal slurm-vf`, run as root. */
#ifndef NM_VF_H_
#define NM_VF_H_

#include "settings.h"
#include "state.h"

/* Somebody outside of the job still has one of its VFs open, and there is no other. */
#define NM_VF_HELD 1

/*
 * Hand the VFs that gres (of nm_node_gres) allocates to the job to its user and write them down for
 * the boot. Returns 0, or NM_VF_HELD and a message, or -1 and a message: the host is at fault.
 */
int nm_vf_lease(const struct nm_settings *s, const struct nm_job *job, const char *gres, char message[NM_MESSAGE_MAX]);

#endif /* NM_VF_H_ */
