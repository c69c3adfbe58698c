#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "param.h"
#include "siphash.h"

/*
 * What launchers tell their ranks, alike in every rank of a job and different in
 * each run.
 */
static const char *const launcher_names[] = {
	"PMIX_NAMESPACE",	/* Open MPI 4 and 5, PRRTE, srun --mpi=pmix */
	"FLUX_JOB_ID",
	"PMI_JOBID",
};

/*
 * What the processes of MPI_Comm_spawn have in common with their parents, which must be
 * in the same region: PRRTE writes NAME@NUMBER, Open MPI 4 a number of 16 bits for the
 * launcher and 16 for the job.
 */
static void family(char *namespace)
{
	char *end, *at = strrchr(namespace, '@');
	unsigned long number;

	if (at) {
		*at = 0;
		return;
	}
	number = strtoul(namespace, &end, 10);
	if (!*end && end - namespace >= 5)
		snprintf(namespace, 24, "%lu", number >> 16);
}

bool ivs_job_strict(void)
{
	return ivs_param.job && *ivs_param.job;
}

uint64_t ivs_job_hash(void)
{
	const char *value, *step;
	char name[512];
	size_t i;

	if (ivs_job_strict())
		return ivs_name_hash(ivs_param.job);
	for (i = 0; i < sizeof(launcher_names) / sizeof(launcher_names[0]); i++) {
		value = getenv(launcher_names[i]);
		if (value && *value) {
			snprintf(name, sizeof(name), "%s", value);
			if (!i)
				family(name);
			return ivs_name_hash(name);
		}
	}
	/* Hydra: one proxy a host starts all the ranks there. */
	if (getenv("PMI_FD") || getenv("PMI_PORT")) {
		snprintf(name, sizeof(name), "hydra=%d", (int) getppid());
		return ivs_name_hash(name);
	}
	value = getenv("SLURM_JOB_ID");
	step = getenv("SLURM_STEP_ID");
	if (value && *value) {
		snprintf(name, sizeof(name), "slurm=%s.%s", value, step ? step : "");
		return ivs_name_hash(name);
	}
	return 0;
}
