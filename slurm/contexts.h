/*
 * The contexts in which Slurm loads the plugin, one file each. All functions have the parameters and results of the
 * callbacks of spank(8).
 */
#ifndef NM_CONTEXTS_H_
#define NM_CONTEXTS_H_

#include <slurm/spank.h>

/* Step ids of <slurm/slurm.h> that older versions lack. */
#ifndef SLURM_EXTERN_CONT
#define SLURM_EXTERN_CONT (0xfffffffc)
#endif
#ifndef SLURM_BATCH_SCRIPT
#define SLURM_BATCH_SCRIPT (0xfffffffb)
#endif
#ifndef SLURM_INTERACTIVE_STEP
#define SLURM_INTERACTIVE_STEP (0xfffffffa)
#endif

/* From Slurm 23.11 on; spank_symbol_supported covers only a plugin's functions. */
typedef spank_err_t nm_prepend_fn(spank_t sp, int argc, const char *argv[]);
extern nm_prepend_fn spank_prepend_task_argv __attribute__((weak));

/* srun, sbatch, salloc: as the user, where the command was typed. */
int nm_alloc_post_opt(spank_t sp, int ac, char **av);

/* Start of slurmd: cleans up what remains from before a reboot. As root. */
int nm_slurmd_init(int ac, char **av);

/* Before and after a job, on each of its hosts: as root. */
int nm_prolog(spank_t sp, int ac, char **av);
int nm_epilog(spank_t sp, int ac, char **av);

/* The extern step, which starts the job's VMs: as root. */
int nm_extern_task_post_fork(spank_t sp, int ac, char **av);

/* A step of the job: its slurmstepd as root, then as the user, then each task. */
int nm_step_post_opt(spank_t sp, int ac, char **av);
int nm_step_user_init(spank_t sp, int ac, char **av);
int nm_step_task_init(spank_t sp, int ac, char **av);

#endif /* NM_CONTEXTS_H_ */
