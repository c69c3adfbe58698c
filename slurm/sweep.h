/* Remains of jobs whose epilog did not run, and cgroups that an epilog could not remove. */
#ifndef NM_SWEEP_H_
#define NM_SWEEP_H_

#include <stdint.h>

#include "settings.h"

/*
 * Before a job starts on node: if there is a directory of another job whose extern step has no slurmstepd, let
 * nearmetal determine whether that job is over, and remove what remains of it. The same if an epilog left a cgroup.
 */
void nm_sweep_before(const struct nm_settings *s, const char *node, uint32_t job);

/*
 * At the start of slurmd: the same for all nodes of this host, and for VFs and huge pages that remain from before a
 * reboot.
 */
void nm_sweep_all(const struct nm_settings *s);

#endif /* NM_SWEEP_H_ */
