#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "values.h"

static const char *const key_names[NM_KEYS] = {
	[NM_VM] = "vm",		[NM_FILE] = "file",   [NM_VMS] = "vms",	  [NM_VCPUS] = "vcpus",
	[NM_MEMORY] = "memory", [NM_ROOT] = "root",   [NM_VF] = "vf",	  [NM_REGION] = "region",
	[NM_POLICY] = "policy", [NM_PAGES] = "pages", [NM_KEEP] = "keep",
};

/* The limits of a VM's memory and of a region: those of the cluster file (docs/reference/cluster.md). */
#define MEMORY_MIN (UINT64_C(128) << 20)
#define MEMORY_MAX (UINT64_C(64) << 40)
#define REGION_MIN (UINT64_C(1) << 20)
#define REGION_MAX (UINT64_C(1) << 40)

const char *nm_key_name(enum nm_key key)
{
	return (unsigned int) key < NM_KEYS ? key_names[key] : NULL;
}

enum nm_key nm_key_find(const char *name, size_t len)
{
	for (int k = 0; k < NM_KEYS; k++)
		if (strlen(key_names[k]) == len && !memcmp(key_names[k], name, len))
			return (enum nm_key) k;
	return NM_KEYS;
}

/* The maximum length of a user's text in a message. */
#define SHOWN 40

/* Copy text for a message: printable, and at most SHOWN bytes. */
static const char *shown(const char *text, char buf[SHOWN + 4])
{
	size_t n = 0;

	for (; text[n] && n < SHOWN; n++)
		buf[n] = isprint((unsigned char) text[n]) ? text[n] : '?';
	strcpy(buf + n, text[n] ? "..." : "");
	return buf;
}

static int number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t n = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (!isdigit((unsigned char) *text) || n > (UINT64_MAX - 9) / 10)
			return -1;
		n = n * 10 + (uint64_t) (*text - '0');
	}
	if (n < min || n > max)
		return -1;
	*out = n;
	return 0;
}

/* Parse a size in bytes: digits, with a unit as in Slurm (K M G T, of 1024), optionally followed by iB or B. */
static int size(const char *text, uint64_t *out)
{
	char digits[24];
	size_t n = strspn(text, "0123456789");
	uint64_t value;
	int shift = 0;

	if (!n || n >= sizeof(digits))
		return -1;
	memcpy(digits, text, n);
	digits[n] = 0;
	if (number(digits, 0, UINT64_MAX / 2, &value))
		return -1;
	text += n;
	if (*text) {
		const char *units = "KMGT", *u = strchr(units, toupper((unsigned char) *text));

		if (!u)
			return -1;
		shift = 10 * (int) (u - units + 1);
		text++;
		if (*text && strcmp(text, "iB") && strcmp(text, "B"))
			return -1;
	}
	if (value > (UINT64_MAX >> 1) >> shift)
		return -1;
	*out = value << shift;
	return 0;
}

static int word(const char *text, const char *more)
{
	if (!*text || strlen(text) > 64)
		return -1;
	for (; *text; text++)
		if (!isalnum((unsigned char) *text) && !strchr(more, *text))
			return -1;
	return 0;
}

static int path(const char *text, char out[NM_VALUE_MAX])
{
	if (text[0] != '/' || strlen(text) >= NM_VALUE_MAX)
		return -1;
	for (const char *p = text; *p; p++)
		if (iscntrl((unsigned char) *p))
			return -1;
	strcpy(out, text);
	return 0;
}

/* Parse [TYPE:]N. */
static int vf(const char *text, char out[NM_VALUE_MAX])
{
	const char *colon = strrchr(text, ':');
	char type[72];
	uint64_t n;

	if (strlen(text) >= sizeof(type))
		return -1;
	if (number(colon ? colon + 1 : text, 1, 64, &n))
		return -1;
	if (colon) {
		memcpy(type, text, (size_t) (colon - text));
		type[colon - text] = 0;
		if (word(type, "_-."))
			return -1;
	}
	strcpy(out, text);
	return 0;
}

int nm_value_read(enum nm_key key, const char *text, char out[NM_VALUE_MAX], char message[NM_MESSAGE_MAX])
{
	char buf[SHOWN + 4];
	uint64_t n = 0;

#define WRONG(...) (snprintf(message, NM_MESSAGE_MAX, __VA_ARGS__), -1)
	switch (key) {
	case NM_VM:
		if (strcmp(text, "0") && strcmp(text, "1"))
			return WRONG("\"%s\" is neither 0 nor 1", shown(text, buf));
		strcpy(out, text);
		return 0;
	case NM_VMS:
		if (number(text, 1, 1024, &n))
			return WRONG("\"%s\" is not a number of VMs: write 1 to 1024", shown(text, buf));
		break;
	case NM_VCPUS:
		if (number(text, 1, 4096, &n))
			return WRONG("\"%s\" is not a number of vCPUs: write 1 to 4096", shown(text, buf));
		break;
	case NM_MEMORY:
		if (size(text, &n) || n < MEMORY_MIN || n > MEMORY_MAX)
			return WRONG("\"%s\" is not the size of a VM's memory: write one like 2GiB, of at least 128MiB",
				     shown(text, buf));
		break;
	case NM_REGION:
		if (size(text, &n) || (n && (n < REGION_MIN || n > REGION_MAX || n & (n - 1))))
			return WRONG(
				"\"%s\" is not the size of a region: write a power of two like 64MiB, or 0 for none",
				shown(text, buf));
		break;
	case NM_FILE:
		if (path(text, out))
			return WRONG("\"%s\" is not an absolute path", shown(text, buf));
		return 0;
	case NM_ROOT:
		if (!strcmp(text, "host"))
			strcpy(out, text);
		else if (path(text, out))
			return WRONG("\"%s\" is neither host nor an absolute directory", shown(text, buf));
		return 0;
	case NM_VF:
		if (vf(text, out))
			return WRONG("\"%s\" is not a number of VFs: write N or TYPE:N, N from 1 to 64",
				     shown(text, buf));
		return 0;
	case NM_POLICY:
		if (strcmp(text, "auto") && strcmp(text, "consolidate") && strcmp(text, "spread"))
			return WRONG("\"%s\" is not a policy: write auto, consolidate or spread", shown(text, buf));
		strcpy(out, text);
		return 0;
	case NM_PAGES:
		if (!strcmp(text, "ordinary"))
			strcpy(out, text);
		else if (!size(text, &n) && n == UINT64_C(2) << 20)
			strcpy(out, "2MiB");
		else if (!size(text, &n) && n == UINT64_C(1) << 30)
			strcpy(out, "1GiB");
		else
			return WRONG("\"%s\" is not a size of pages: write 2MiB, 1GiB or ordinary", shown(text, buf));
		return 0;
	case NM_KEEP:
		if (strcmp(text, "job") && strcmp(text, "step"))
			return WRONG("\"%s\" is neither job nor step", shown(text, buf));
		strcpy(out, text);
		return 0;
	default: return WRONG("is not a key");
	}
	snprintf(out, NM_VALUE_MAX, "%llu", (unsigned long long) n);
	return 0;
#undef WRONG
}

int nm_values_set(struct nm_values *v, enum nm_key key, const char *text, enum nm_origin from,
		  char message[NM_MESSAGE_MAX])
{
	char out[NM_VALUE_MAX];

	if (nm_value_read(key, text, out, message))
		return -1;
	if (from >= v->origin[key]) {
		strcpy(v->text[key], out);
		v->origin[key] = from;
	}
	return 0;
}

int nm_values_spec(struct nm_values *v, const char *text, enum nm_origin from, char message[NM_MESSAGE_MAX])
{
	char item[NM_VALUE_MAX], why[NM_MESSAGE_MAX];

	if (strlen(text) >= NM_VALUE_MAX) {
		snprintf(message, NM_MESSAGE_MAX, "is longer than %d bytes", NM_VALUE_MAX - 1);
		return -1;
	}
	/* A path has a slash before any =, or contains no = at all. */
	if (text[0] == '/' || !strchr(text, '='))
		return nm_values_set(v, NM_FILE, text, from, message);
	while (*text) {
		size_t len = strcspn(text, ",");
		size_t name = strcspn(text, "=,");
		enum nm_key key = nm_key_find(text, name);

		if (name == len || key == NM_KEYS || key == NM_VM || key == NM_FILE) {
			memcpy(item, text, len);
			item[len] = 0;
			char buf[SHOWN + 4];

			snprintf(message, NM_MESSAGE_MAX,
				 "\"%s\" is not KEY=VALUE with a KEY of vms, vcpus, memory, root, vf, "
				 "region, policy, pages or keep",
				 shown(item, buf));
			return -1;
		}
		memcpy(item, text + name + 1, len - name - 1);
		item[len - name - 1] = 0;
		if (nm_values_set(v, key, item, from, why)) {
			snprintf(message, NM_MESSAGE_MAX, "%s: %.400s", nm_key_name(key), why);
			return -1;
		}
		text += len;
		if (*text == ',')
			text++;
	}
	return 0;
}

uint64_t nm_values_number(const struct nm_values *v, enum nm_key key, uint64_t fallback)
{
	return v->origin[key] == NM_UNSET ? fallback : strtoull(v->text[key], NULL, 10);
}

bool nm_values_wanted(const struct nm_values *v)
{
	return nm_values_number(v, NM_VM, 0) != 0;
}
