#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "nearmetal";

void program_name(const char *name)
{
	program = name;
}

bool first_rank(void)
{
	/* Open MPI; MPICH, Intel MPI and other users of PMI; PMIx; Slurm. */
	static const char *const names[] = {
		"OMPI_COMM_WORLD_RANK",
		"PMI_RANK",
		"PMIX_RANK",
		"SLURM_PROCID",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *rank = getenv(names[i]);

		if (rank)
			return !strcmp(rank, "0");
	}
	return true;
}

void complain(const char *format, ...)
{
	char line[1024];
	va_list ap;

	if (!first_rank())
		return;
	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s\n", program, line);
}

/* Parses the number at *text, and moves *text behind it. */
static bool number(const char **text, uint64_t *out)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*out = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

static bool size_at(const char **text, uint64_t *out)
{
	static const struct {
		const char *unit;
		int shift;
	} units[] = {
		{ "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "K", 10 }, { "M", 20 }, { "G", 30 },
	};

	if (!number(text, out))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t len = strlen(units[i].unit);

		if (strncmp(*text, units[i].unit, len))
			continue;
		if (*out > UINT64_MAX >> units[i].shift)
			return false;
		*out <<= units[i].shift;
		*text += len;
		break;
	}
	return true;
}

bool value_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *at = text;

	if (!size_at(&at, out) || *at) {
		complain("--%s: \"%s\" is not a size (4096, 64KiB, 8MiB)", option, text);
		return false;
	}
	if (*out < min || *out > max) {
		complain("--%s: %s is not in %llu to %llu bytes", option, text, (unsigned long long) min,
			 (unsigned long long) max);
		return false;
	}
	return true;
}

bool value_count(const char *option, const char *text, long min, long max, long *out)
{
	const char *at = text;
	uint64_t n;

	if (!number(&at, &n) || *at || n > (uint64_t) max || (long) n < min) {
		complain("--%s: \"%s\" is not a number in %ld to %ld", option, text, min, max);
		return false;
	}
	*out = (long) n;
	return true;
}

bool value_seconds(const char *option, const char *text, double min, double max, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (end == text || *end || !isfinite(*out) || *out < min || *out > max) {
		complain("--%s: \"%s\" is not a number in %g to %g", option, text, min, max);
		return false;
	}
	return true;
}

bool value_sizes(const char *option, const char *text, uint64_t max, uint64_t *a, uint64_t *b)
{
	const char *at = text;
	bool ok = size_at(&at, a);

	*b = *a;
	if (ok && *at == ':') {
		at++;
		ok = size_at(&at, b);
	}
	if (!ok || *at || *a > *b) {
		complain("--%s: \"%s\" is not a range of sizes (0:4MiB, or one size)", option, text);
		return false;
	}
	if (*b > max) {
		complain("--%s: %s is above %llu bytes", option, text, (unsigned long long) max);
		return false;
	}
	return true;
}

bool value_counts(const char *option, const char *text, long max, long *a, long *b)
{
	const char *at = text;
	uint64_t x = 0, y;
	bool ok = number(&at, &x);

	y = x;
	if (ok && *at == ':') {
		at++;
		ok = number(&at, &y);
	}
	if (!ok || *at || x > (uint64_t) max || y > (uint64_t) max) {
		complain("--%s: \"%s\" is not a number, or two as N:M, of at most %ld", option, text, max);
		return false;
	}
	*a = (long) x;
	*b = (long) y;
	return true;
}
