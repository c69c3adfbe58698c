#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/param.h"
#include "region/job.h"
#include "region/siphash.h"

/* Environment variables of launchers whose values are the same in every rank of a job and different in each run. */
static const char *const launcher_names[] = {
	"PMIX_NAMESPACE", /* Open MPI 4 and 5, PRRTE, srun --mpi=pmix */
	"FLUX_JOB_ID",
	"PMI_JOBID",
};

/*
 * Cuts a namespace to the part that processes of MPI_Comm_spawn share with their parents, which must be in the same
 * region: PRRTE writes NAME@NUMBER, Open MPI 4 a number of 16 bits for the launcher and 16 for the job.
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

/*
 * Returns the process that created the socket PMI_FD: the launcher's proxy, one per host for Hydra (MPICH, Intel MPI),
 * slurmstepd for srun. It is the same for all ranks of the host, even with processes between the proxy and a rank (a
 * shell, timeout, perf). Returns 0 if not known.
 */
static pid_t pmi_proxy(void)
{
	const char *text = getenv("PMI_FD");
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char *end;
	long fd;

	if (!text || !*text)
		return 0;
	fd = strtol(text, &end, 10);
	if (*end || fd < 0 || fd > INT32_MAX || getsockopt((int) fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    len != sizeof(cred))
		return 0;
	return cred.pid;
}

/* Returns a secret that all ranks of a job know and other users do not, random in each run, or NULL. */
static const char *launcher_secret(void)
{
	const char *secret = getenv("OMPI_MCA_orte_precondition_transports"); /* Open MPI 4 */

	return secret && strlen(secret) >= 16 ? secret : NULL;
}

/* Returns the hash of a name that others can guess. With a launcher's secret they cannot guess the hash. */
static uint64_t name_hash(const char *name)
{
	static const uint8_t zeros[16];
	const char *secret = launcher_secret();
	uint64_t key[2], h;

	if (!secret)
		return ivs_name_hash(name);
	key[0] = ivs_siphash(zeros, secret, strlen(secret));
	key[1] = ivs_siphash((const uint8_t *) "nearmetal secret", secret, strlen(secret));
	h = ivs_siphash((const uint8_t *) key, name, strlen(name));
	return h ? h : 1;
}

static uint64_t find_hash(void)
{
	const char *value, *step;
	char name[512];
	pid_t proxy;
	size_t i;

	if (ivs_job_strict())
		return ivs_name_hash(ivs_param.job);
	for (i = 0; i < sizeof(launcher_names) / sizeof(launcher_names[0]); i++) {
		value = getenv(launcher_names[i]);
		if (value && *value) {
			snprintf(name, sizeof(name), "%s", value);
			if (!i)
				family(name);
			return name_hash(name);
		}
	}
	proxy = pmi_proxy();
	value = getenv("PMI_PORT");
	if (proxy > 0) {
		snprintf(name, sizeof(name), "hydra=%d", (int) proxy);
		return name_hash(name);
	}
	if (value && *value) {
		/* HOST:PORT of the proxy, or of mpiexec. */
		snprintf(name, sizeof(name), "pmi=%s", value);
		return name_hash(name);
	}
	if (getenv("PMI_FD")) {
		snprintf(name, sizeof(name), "hydra=%d", (int) getppid());
		return name_hash(name);
	}
	value = getenv("SLURM_JOB_ID");
	step = getenv("SLURM_STEP_ID");
	if (value && *value) {
		snprintf(name, sizeof(name), "slurm=%s.%s", value, step ? step : "");
		return name_hash(name);
	}
	return 0;
}

static uint64_t the_hash;

static void find_once(void)
{
	the_hash = find_hash();
}

uint64_t ivs_job_hash(void)
{
	/* Computed once: after MPI_Finalize the descriptor in PMI_FD may be another file. */
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_once);
	return the_hash;
}
