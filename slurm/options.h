/*
 * The options of srun, sbatch and salloc: one table defines their help, their NEARMETAL_* defaults and the arguments
 * of plugstack.conf.
 */
#ifndef NM_OPTIONS_H_
#define NM_OPTIONS_H_

#include <slurm/spank.h>

#include "values.h"

/* The values so far, from options and then from nm_options_complete. */
extern struct nm_values nm_options;

/* The first mistake in an option; "" if there is none. */
extern char nm_options_mistake[NM_MESSAGE_MAX];

int nm_options_register(spank_t sp);

/*
 * Fill in defaults from the environment (get returns the value of a variable, or NULL) and from plugstack.conf for
 * unset options. If remote is set, nothing was typed here: no path is resolved, and no variable of this process is
 * set. Returns 0, or -1 with nm_options_mistake set.
 */
int nm_options_complete(const char *(*get)(const char *name, void *arg), void *arg, int remote, int ac, char **av);

/* The name of a given --vm-... option that has no meaning without VMs, or NULL. */
const char *nm_options_idle(void);

#endif /* NM_OPTIONS_H_ */
