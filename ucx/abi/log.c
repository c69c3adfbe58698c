#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "log.h"

static enum ivu_log_level wanted(void)
{
	static const char *const names[] = { "fatal", "error", "warn", "diag", "info", "debug" };
	const char *text = getenv("UCX_LOG_LEVEL");
	int i;

	if (!text || !*text)
		return IVU_LOG_WARN;
	for (i = 0; i <= IVU_LOG_DEBUG; i++)
		if (!strncasecmp(text, names[i], strlen(names[i])))
			return (enum ivu_log_level) i;
	/* "trace" and higher levels. */
	return IVU_LOG_DEBUG;
}

bool ivu_log_enabled(enum ivu_log_level level)
{
	static int most = -1;

	if (most < 0)
		most = (int) wanted();
	return (int) level <= most;
}

static void print(const char *format, va_list args)
{
	char line[1024];

	if (vsnprintf(line, sizeof(line), format, args) >= 0)
		fprintf(stderr, "nearmetal-ucx[%d]: %s\n", (int) getpid(), line);
}

void ivu_log(enum ivu_log_level level, const char *format, ...)
{
	va_list args;

	if (!ivu_log_enabled(level))
		return;
	va_start(args, format);
	print(format, args);
	va_end(args);
}

bool ivu_report_wanted(void)
{
	/* Variables of Open MPI, MPICH, PMIx, Slurm. */
	static const char *const ranks[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID" };
	const char *wanted = getenv("NEARMETAL_UCX_REPORT"), *rank = NULL;
	size_t i;

	for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]) && !rank; i++)
		rank = getenv(ranks[i]);
	return wanted && *wanted && (!rank || !strcmp(rank, "0"));
}

void ivu_report(const char *format, ...)
{
	va_list args;

	if (!ivu_report_wanted() && !ivu_log_enabled(IVU_LOG_INFO))
		return;
	va_start(args, format);
	print(format, args);
	va_end(args);
}
