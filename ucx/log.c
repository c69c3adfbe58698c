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
	/* "trace" and what is beyond it. */
	return IVU_LOG_DEBUG;
}

bool ivu_log_enabled(enum ivu_log_level level)
{
	static int most = -1;

	if (most < 0)
		most = (int) wanted();
	return (int) level <= most;
}

void ivu_log(enum ivu_log_level level, const char *format, ...)
{
	char line[1024];
	va_list args;
	int n;

	if (!ivu_log_enabled(level))
		return;
	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	fprintf(stderr, "nearmetal-ucx[%d]: %s\n", (int) getpid(), line);
}
