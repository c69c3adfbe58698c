/* A user's own plugin of sbatch: what root gets as the job's request for VMs is what LIE says. */
#include <stdlib.h>

#include <slurm/spank.h>

SPANK_PLUGIN(liar, 1)

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	const char *lie = getenv("LIE");

	(void) ac;
	(void) av;
	if (!lie || spank_context() != S_CTX_ALLOCATOR)
		return 0;
	return spank_job_control_setenv(sp, "NEARMETAL_REQUEST", lie, 1) == ESPANK_SUCCESS ? 0 : -1;
}
