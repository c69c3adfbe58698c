/* Leasing a job's VFs to its user: `nearmetal slurm-vf`, run as root. */
#ifndef NM_VF_H_
#define NM_VF_H_

#include "settings.h"
#include "state.h"

/* A process outside of the job still has one of its VFs open, and there is no substitute. */
#define NM_VF_HELD 1

/*
 * Lease the VFs that gres (from nm_node_gres) allocates to the job to its user, and record them for the boot. Returns
 * 0, or NM_VF_HELD and a message, or -1 and a message: the host is at fault.
 */
int nm_vf_lease(const struct nm_settings *s, const struct nm_job *job, const char *gres, char message[NM_MESSAGE_MAX]);

#endif /* NM_VF_H_ */
