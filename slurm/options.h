/*
 * The options of srun, sbatch and salloc: one table, from which their help is made, their
 * NEARMETAL_* defaults and the arguments of plugstack.conf.
 */
#ifndef NM_OPTIONS_H_
#define NM_OPTIONS_H_

#include <slurm/spank.h>

#include "values.h"

/* What was given so far, by options and then by nm_options_complete. */
extern struct nm_values nm_options;

/* The first mistake in an option; "" if there was none. */
extern char nm_options_mistake[NM_MESSAGE_MAX];

int nm_options_register(spank_t sp);

/*
 * Put the defaults of the environment (get: the value of a variable, or NULL) and of
 * plugstack.conf below the options. Where remote is set nothing was typed here: no path is resolved, and no variable of
 * this process set. Returns 0, or -1 with nm_options_mistake set.
 */
int nm_options_complete(const char *(*get)(const char *name, void *arg), void *arg, int remote, int ac, char **av);

/* Whether a --vm-... option was given that means nothing without VMs; its name, or NULL. */
const char *nm_options_idle(void);

#endif /* NM_OPTIONS_H_ */
