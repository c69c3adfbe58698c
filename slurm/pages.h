/* Reserving huge pages for a job: `nearmetal slurm-pages`, run as root. */
#ifndef NM_PAGES_H_
#define NM_PAGES_H_

#include "settings.h"
#include "state.h"

/* Whether a request asks for huge pages. */
bool nm_pages_wanted(const struct nm_values *v);

/*
 * Reserve the huge pages for the job's VMs on this host, bounded by the resources that Slurm has allocated to the
 * job. Returns 0, or -1 and a message for the user.
 */
int nm_pages_keep(const struct nm_settings *s, const struct nm_job *job, char message[NM_MESSAGE_MAX]);

#endif /* NM_PAGES_H_ */
