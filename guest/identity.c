#include "identity.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	int what;
} limits[] = {
	{ "as", RLIMIT_AS },
	{ "core", RLIMIT_CORE },
	{ "cpu", RLIMIT_CPU },
	{ "data", RLIMIT_DATA },
	{ "fsize", RLIMIT_FSIZE },
	{ "memlock", RLIMIT_MEMLOCK },
	{ "msgqueue", RLIMIT_MSGQUEUE },
	{ "nice", RLIMIT_NICE },
	{ "nofile", RLIMIT_NOFILE },
	{ "nproc", RLIMIT_NPROC },
	{ "rss", RLIMIT_RSS },
	{ "rtprio", RLIMIT_RTPRIO },
	{ "sigpending", RLIMIT_SIGPENDING },
	{ "stack", RLIMIT_STACK },
};

static bool read_limit(const char *s, rlim_t *to)
{
	uint64_t n;

	if (!strcmp(s, "unlimited")) {
		*to = RLIM_INFINITY;
		return true;
	}
	if (!parse_number(s, UINT64_MAX, &n))
		return false;
	*to = n;
	return true;
}

static bool read_rlimit(struct identity *i, const char *s)
{
	char name[16], soft[32], hard[32], rest;

	if (i->nlimits == LIMITS_MAX || sscanf(s, "%15s %31s %31s %c", name, soft, hard, &rest) != 3)
		return false;
	for (size_t k = 0; k < sizeof(limits) / sizeof(*limits); k++) {
		struct rlimit *to = &i->limits[i->nlimits].to;

		if (strcmp(limits[k].name, name))
			continue;
		i->limits[i->nlimits++].what = limits[k].what;
		return read_limit(soft, &to->rlim_cur) && read_limit(hard, &to->rlim_max) &&
		       to->rlim_cur <= to->rlim_max;
	}
	return false;
}

const char *identity_read(struct identity *i, const struct fields *h)
{
	const char *s;
	size_t at = 0;
	uint64_t n;

	i->ngroups = i->nlimits = 0;
	i->umask = 022;
	/* To setresuid (uid_t)-1 means "unchanged". */
	if (!parse_number(fields_get(h, "uid"), UINT32_MAX - 1, &n))
		return "uid is missing or is not a number";
	i->uid = n;
	if (!parse_number(fields_get(h, "gid"), UINT32_MAX - 1, &n))
		return "gid is missing or is not a number";
	i->gid = n;
	while ((s = fields_next(h, "group", &at))) {
		if (i->ngroups == GROUPS_MAX)
			return "too many groups";
		if (!parse_number(s, UINT32_MAX - 1, &n))
			return "a group is not a number";
		i->groups[i->ngroups++] = n;
	}
	at = 0;
	while ((s = fields_next(h, "rlimit", &at)))
		if (!read_rlimit(i, s))
			return "a resource limit that cannot be";
	at = 0;
	i->bound = false;
	memset(i->cpus, 0, sizeof(i->cpus));
	while ((s = fields_next(h, "cpu", &at))) {
		if (!parse_number(s, CPUS_MAX - 1, &n))
			return "a CPU that cannot be";
		i->cpus[n / (8 * sizeof(*i->cpus))] |= 1ul << n % (8 * sizeof(*i->cpus));
		i->bound = true;
	}
	s = fields_get(h, "umask");
	if (s) {
		if (strlen(s) > 4 || strspn(s, "01234567") != strlen(s) || !*s)
			return "an umask that cannot be";
		for (i->umask = 0; *s; s++)
			i->umask = i->umask << 3 | (*s - '0');
		i->umask &= 0777;
	}
	return NULL;
}

bool identity_take(const struct identity *i)
{
	bool root = !geteuid();

	for (size_t k = 0; k < i->nlimits; k++) {
		struct rlimit to = i->limits[k].to, have;

		if (!setrlimit(i->limits[k].what, &to))
			continue;
		/* Limits above the kernel's maximum are reduced to it. */
		if (getrlimit(i->limits[k].what, &have))
			return false;
		if (to.rlim_max > have.rlim_max)
			to.rlim_max = have.rlim_max;
		if (to.rlim_cur > to.rlim_max)
			to.rlim_cur = to.rlim_max;
		if (setrlimit(i->limits[k].what, &to))
			return false;
	}
	umask(i->umask);
	if (i->bound && syscall(SYS_sched_setaffinity, 0, sizeof(i->cpus), i->cpus))
		return false;
	if (!root && i->uid == getuid() && i->gid == getgid())
		return true;
	return !setgroups(i->ngroups, i->groups) && !setresgid(i->gid, i->gid, i->gid) &&
	       !setresuid(i->uid, i->uid, i->uid);
}
