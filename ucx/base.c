/*
 * The environment that the parts of fabric/ shared with the libfabric provider need: a log, parameters, and a core
 * provider, which does not exist here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "abi/log.h"
#include "base.h"
#include "base/lib.h"
#include "base/param.h"
#include "remote/core.h"
#include "ring/copy.h"
#include "ring/cpu_relax.h"

struct fi_provider ivs_prov;

static const char *error_text(int errnum)
{
	return strerror(errnum);
}

static enum ivu_log_level level_of(enum fi_log_level level)
{
	return level == FI_LOG_WARN ? IVU_LOG_WARN : level == FI_LOG_INFO ? IVU_LOG_INFO : IVU_LOG_DEBUG;
}

static int log_enabled(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys)
{
	(void) prov;
	(void) subsys;
	return ivu_log_enabled(level_of(level));
}

static void log_line(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
		     const char *func, int line, const char *fmt, ...)
{
	char text[900];
	va_list args;
	size_t n;

	(void) prov;
	(void) subsys;
	(void) func;
	(void) line;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	n = strlen(text);
	if (n && text[n - 1] == '\n')
		text[n - 1] = 0;
	ivu_log(level_of(level), "%s", text);
}

static int define(const struct fi_provider *prov, const char *name, enum fi_param_type type, const char *help, ...)
{
	(void) prov;
	(void) name;
	(void) type;
	(void) help;
	return 0;
}

static bool number(const char *text, unsigned long long *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	return !errno && end != text && !*end && *text != '-';
}

/* Reads FI_IVSHMEM_NAME from the environment: the provider's parameters are also the transport's. */
static int get(struct fi_provider *prov, const char *name, void *value)
{
	char variable[64] = "FI_IVSHMEM_";
	unsigned long long n;
	const char *text;
	size_t i, len = strlen(variable);

	(void) prov;
	for (i = 0; name[i] && len + i + 1 < sizeof(variable); i++)
		variable[len + i] = (char) (name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
	text = getenv(variable);
	if (!text)
		return -FI_ENODATA;
	if (!strcmp(name, "region") || !strcmp(name, "job") || !strcmp(name, "core")) {
		*(const char **) value = text;
	} else if (!strcmp(name, "cma") || !strcmp(name, "nt") || !strcmp(name, "uncached")) {
		*(int *) value = !strcmp(text, "1") || !strcasecmp(text, "yes") || !strcasecmp(text, "true") ||
				 !strcasecmp(text, "on");
	} else if (number(text, &n)) {
		*(size_t *) value = (size_t) n;
	} else {
		ivu_log(IVU_LOG_WARN, "%s=%s: expected a number; it is ignored", variable, text);
		return -FI_EINVAL;
	}
	return 0;
}

struct ivs_lib ivs_lib = {
	.strerror = error_text,
	.log_enabled = log_enabled,
	.log = log_line,
	.param_define = define,
	.param_get = get,
};

unsigned int ivu_forks;

static void forked(void)
{
	ivu_forks++;
}

static void once(void)
{
	pthread_atfork(NULL, NULL, forked);
	ivs_param_init();
	ivs_copy_init();
	ivs_cpu_relax_init();
}

void ivu_base_init(void)
{
	static pthread_once_t control = PTHREAD_ONCE_INIT;

	pthread_once(&control, once);
}

/* progress.c calls it only for a domain with a core provider. */
int ivs_core_poll(struct ivs_ep *ep)
{
	(void) ep;
	return 0;
}
