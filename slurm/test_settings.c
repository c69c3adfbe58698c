/* Tests of the parser of plugstack.conf's arguments. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

#include "settings.h"

static int failures;
static char said[1024];

/* slurm_error replaces Slurm's own, which logs: it keeps the last message. */
void slurm_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
}

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static struct nm_settings reads(const char *argument)
{
	struct nm_settings s;
	char copy[256], *av[] = { copy };

	snprintf(copy, sizeof(copy), "%s", argument);
	*said = 0;
	nm_settings_read(&s, *argument ? 1 : 0, av);
	/* The strings belong to av: copy those that are returned. */
	static char isolation[256], backend[256];

	snprintf(isolation, sizeof(isolation), "%s", s.isolation);
	snprintf(backend, sizeof(backend), "%s", s.backend);
	s.isolation = isolation;
	s.backend = backend;
	return s;
}

int main(void)
{
	CHECK(!strcmp(reads("").isolation, "auto") && !*said);
	CHECK(!strcmp(reads("isolation=auto").isolation, "auto") && !*said);
	CHECK(!strcmp(reads("isolation=standard").isolation, "standard") && !*said);
	CHECK(!strcmp(reads("isolation=strict").isolation, "strict") && !*said);
	/* Never weaker than intended: unknown values are passed on, and nearmetal rejects them. */
	CHECK(!strcmp(reads("isolation=strickt").isolation, "strickt") && strstr(said, "isolation=strickt"));
	CHECK(!strcmp(reads("isolation=").isolation, "(empty)") && strstr(said, "no VM will start"));
	CHECK(!strcmp(reads("isolate=strict").isolation, "auto") && strstr(said, "isolate=strict"));
	CHECK(!strcmp(reads("").backend, "qemu") && !strcmp(reads("vm_backend=qemu").backend, "qemu") && !*said);
	CHECK(!strcmp(reads("vm_backend=").backend, "(empty)"));
	CHECK(!strcmp(reads("vm_backend=libvirt").backend, "libvirt"));
	CHECK(reads("root_writes=yes").root_writes && !*said);
	CHECK(!reads("root_writes=no").root_writes);
	CHECK(reads("boot_timeout=7").boot_timeout == 7);
	CHECK(reads("boot_timeout=-7").boot_timeout == 300);
	CHECK(!reads("vm_memory=1GiB").root_writes && !*said);
	if (failures)
		return 1;
	puts("settings: ok");
	return 0;
}
