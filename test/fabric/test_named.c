/* A core provider whose name has two parts, with libraries that find it by both, and only by the first one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lib.h"
#include "remote/named.h"

static const char *const *offers; /* names, ended by NULL */
static int two_parts;		  /* the library finds names of two parts */
static int asked, held, bad;

static struct fi_info *made(const char *name)
{
	struct fi_info *f = calloc(1, sizeof(*f));

	f->fabric_attr = calloc(1, sizeof(*f->fabric_attr));
	f->fabric_attr->prov_name = name ? strdup(name) : NULL;
	held++;
	return f;
}

static void freed(struct fi_info *f)
{
	while (f) {
		struct fi_info *next = f->next;

		free(f->fabric_attr->prov_name);
		free(f->fabric_attr);
		free(f);
		f = next;
		held--;
	}
}

static int found(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		 struct fi_info **info)
{
	const char *name = hints->fabric_attr->prov_name;
	struct fi_info **at = info;

	(void) version, (void) node, (void) service;
	asked++;
	bad |= flags != 7;
	if (!strcmp(name, "broken"))
		return -FI_EIO;
	*info = NULL;
	for (const char *const *o = offers; *o; o++) {
		size_t n = strlen(name);

		if (strncmp(*o, name, n) || (strchr(name, ';') && !two_parts))
			continue;
		*at = made(*o);
		at = &(*at)->next;
	}
	if (!*info)
		return -FI_ENODATA;
	*at = made(NULL); /* one without a name */
	return 0;
}

struct ivs_lib ivs_lib = { .getinfo = found, .freeinfo = freed };

/* Asks for a name. count: how many of the results have that name; -1: nothing is found. */
static void want(const char *what, const char *name, int ret, int count, int times)
{
	struct fi_info *hints = made(name), *info = NULL;
	int got, n = 0;

	asked = 0;
	got = ivs_named(1, 7, hints, &info);
	for (struct fi_info *f = got ? NULL : info; f; f = f->next)
		n += f->fabric_attr->prov_name && !strcmp(f->fabric_attr->prov_name, name);
	if (got != ret || n != count || asked != times || strcmp(hints->fabric_attr->prov_name, name)) {
		printf("%s: returned %d, %d of that name, asked %d times; hints name %s\n", what, got, n, asked,
		       hints->fabric_attr->prov_name);
		bad = 1;
	}
	if (!got)
		freed(info);
	freed(hints);
	if (held) {
		printf("%s: %d were not freed\n", what, held);
		bad = 1;
	}
}

int main(void)
{
	static const char *const both[] = { "verbs;ofi_rxm", "verbs;ofi_rxd", "verbs", "verbs;ofi_rxm", NULL };
	static const char *const other[] = { "verbs;ofi_rxd", "verbs", NULL };
	static const char *const none[] = { NULL };

	offers = both;
	two_parts = 1;
	want("a library that finds two parts", "verbs;ofi_rxm", 0, 2, 1);
	want("a name of one part", "verbs", 0, 1, 1);
	two_parts = 0;
	want("a library that finds the first part only", "verbs;ofi_rxm", 0, 2, 2);
	offers = other;
	want("another is layered on it", "verbs;ofi_rxm", -FI_ENODATA, 0, 2);
	offers = none;
	want("nothing", "verbs;ofi_rxm", -FI_ENODATA, 0, 2);
	want("nothing by one part", "verbs", -FI_ENODATA, 0, 1);
	want("another error", "broken", -FI_EIO, 0, 1);
	return bad;
}
