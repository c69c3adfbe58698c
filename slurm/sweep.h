/* What jobs have left whose epilog did not run, and cgroups that an epilog could not remove. */
#ifndef NM_SWEEP_H_
#define NM_SWEEP_H_

#include <stdint.h>

#include "settings.h"

/*
 * Before a job starts on node: if another's folder is there whose extern step no slurmstepd watches,
 * have nearmetal find out whether that job is over, and remove what is left of it. The same where an epilog
 * left a cgroup.
 */
void nm_sweep_before(const struct nm_settings *s, const char *node, uint32_t job);

/* At slurmd's start: the same for all nodes of this host, and for what a reboot left of VFs and huge pages. */
void nm_sweep_all(const struct nm_settings *s);

#endif /* NM_SWEEP_H_ */
