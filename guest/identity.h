/* The user, groups and limits of a child. */
#ifndef NM_IDENTITY_H
#define NM_IDENTITY_H

#include "fields.h"

#include <sys/resource.h>
#include <sys/types.h>

enum { GROUPS_MAX = 1024, LIMITS_MAX = 16, CPUS_MAX = 4096 };

struct identity {
	uid_t uid;
	gid_t gid;
	size_t ngroups;
	gid_t groups[GROUPS_MAX];
	mode_t umask;
	bool bound; /* to cpus */
	unsigned long cpus[CPUS_MAX / (8 * sizeof(unsigned long))];
	size_t nlimits;
	struct {
		int what;
		struct rlimit to;
	} limits[LIMITS_MAX];
};

/* Parses a header; returns NULL, or the fault. */
const char *identity_read(struct identity *i, const struct fields *h);
/* Applies it in a child; false with errno. */
bool identity_take(const struct identity *i);

#endif
