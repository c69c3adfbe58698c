/* The callbacks for Slurm: each calls the function of the context in which it runs. */
#include <stdbool.h>
#include <stdint.h>

#include "contexts.h"
#include "options.h"

SPANK_PLUGIN(nearmetal, 1)

/* The step of a slurmstepd; an id that no step has if it is unknown. */
static uint32_t step_id(spank_t sp)
{
	uint32_t id = UINT32_MAX;

	if (spank_get_item(sp, S_JOB_STEPID, &id) != ESPANK_SUCCESS)
		return UINT32_MAX;
	return id;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE: return nm_options_register(sp);
	case S_CTX_SLURMD: return nm_slurmd_init(ac, av);
	default: return 0;
	}
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR: return nm_alloc_post_opt(sp, ac, av);
	case S_CTX_REMOTE:
		if (step_id(sp) == SLURM_EXTERN_CONT)
			return 0;
		return nm_step_post_opt(sp, ac, av);
	default: return 0;
	}
}

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
	return nm_prolog(sp, ac, av);
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	return nm_epilog(sp, ac, av);
}

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	if (step_id(sp) == SLURM_EXTERN_CONT)
		return 0;
	return nm_step_user_init(sp, ac, av);
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	if (step_id(sp) == SLURM_EXTERN_CONT)
		return 0;
	return nm_step_task_init(sp, ac, av);
}

int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	if (step_id(sp) != SLURM_EXTERN_CONT)
		return 0;
	return nm_extern_task_post_fork(sp, ac, av);
}
