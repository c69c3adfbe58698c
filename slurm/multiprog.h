/* srun's own command line. */
#ifndef NM_MULTIPROG_H_
#define NM_MULTIPROG_H_

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether a command line (as in /proc/self/cmdline: words that end with a zero byte) contains srun's --multi-prog.
 * Before Slurm 23.11 a plugin cannot run its wrapper before the programs of such a step, which would then run on the
 * host without a warning.
 */
bool nm_multiprog(const char *cmdline, size_t len);

#endif /* NM_MULTIPROG_H_ */
