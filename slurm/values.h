/*
 * A user's wishes for a job's VMs: the keys, and the parsers of their values. The text comes from users, and root
 * reads it too; therefore everything is bounded and checked here.
 */
#ifndef NM_VALUES_H_
#define NM_VALUES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The maximum size of a value and of a message, in bytes, including the final zero byte. */
#define NM_VALUE_MAX   1024
#define NM_MESSAGE_MAX 512

enum nm_key {
	NM_VM,	   /* VMs are requested: 1, or 0 by --no-vm */
	NM_FILE,   /* cluster file, absolute path */
	NM_VMS,	   /* number of VMs per node */
	NM_VCPUS,  /* per VM */
	NM_MEMORY, /* per VM, bytes */
	NM_ROOT,   /* "host" or an absolute directory */
	NM_VF,	   /* [TYPE:]N */
	NM_REGION, /* bytes, a power of two or 0 */
	NM_POLICY, /* of placement */
	NM_PAGES,  /* pages of the VMs' memory: "2MiB", "1GiB" or "ordinary" */
	NM_KEEP,   /* "job" or "step" */
	NM_KEYS
};

/* The origin of a value; a higher one overrides a lower one. */
enum nm_origin {
	NM_UNSET,
	NM_FROM_SITE,  /* plugstack.conf */
	NM_FROM_ENV,   /* NEARMETAL_* */
	NM_FROM_SPEC,  /* --vm=KEY=VALUE,... */
	NM_FROM_OPTION /* --vm-KEY */
};

struct nm_values {
	char text[NM_KEYS][NM_VALUE_MAX]; /* in the form of nm_value_read */
	enum nm_origin origin[NM_KEYS];
};

/* The name of a key in a SPEC and a request ("memory"), or NULL. */
const char *nm_key_name(enum nm_key key);

/* The key called name[0..len), or NM_KEYS. */
enum nm_key nm_key_find(const char *name, size_t len);

/*
 * Parse the value of a key and write it in canonical form (bytes for sizes) to out. Returns 0, or -1 and a message
 * about the text, without a name before it.
 */
int nm_value_read(enum nm_key key, const char *text, char out[NM_VALUE_MAX], char message[NM_MESSAGE_MAX]);

/* Set a value, unless one of a higher origin is set. Returns as nm_value_read does. */
int nm_values_set(struct nm_values *v, enum nm_key key, const char *text, enum nm_origin from,
		  char message[NM_MESSAGE_MAX]);

/* Parse the argument of --vm: KEY=VALUE,... or the path of a cluster file. */
int nm_values_spec(struct nm_values *v, const char *text, enum nm_origin from, char message[NM_MESSAGE_MAX]);

/* The value of a key as a number; fallback if it is not set. */
uint64_t nm_values_number(const struct nm_values *v, enum nm_key key, uint64_t fallback);

/* Whether VMs are requested. */
bool nm_values_wanted(const struct nm_values *v);

#endif /* NM_VALUES_H_ */
