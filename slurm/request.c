#include <stdio.h>
#include <string.h>

#include "request.h"

#define FORMAT "1"

/* Whether a byte is written as it is; independent of the locale. */
static bool plain(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c && strchr("-_./:,+@", c));
}

int nm_request_write(const struct nm_values *v, char out[NM_REQUEST_MAX])
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

#define PUT(c) \
	do { \
		if (n + 1 >= NM_REQUEST_MAX) \
			return -1; \
		out[n++] = (c); \
	} while (0)
	for (const char *p = FORMAT; *p; p++)
		PUT(*p);
	for (int k = 0; k < NM_KEYS; k++) {
		if (v->origin[k] == NM_UNSET)
			continue;
		PUT(' ');
		for (const char *p = nm_key_name((enum nm_key) k); *p; p++)
			PUT(*p);
		PUT('=');
		for (const char *p = v->text[k]; *p; p++) {
			if (plain(*p)) {
				PUT(*p);
				continue;
			}
			PUT('%');
			PUT(hex[(unsigned char) *p >> 4]);
			PUT(hex[(unsigned char) *p & 15]);
		}
	}
#undef PUT
	out[n] = 0;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decode value[0..len). Returns 0, or -1 if it is not encoded in the form above. */
static int decode(const char *value, size_t len, char out[NM_VALUE_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = value[i];

		if (n + 1 >= NM_VALUE_MAX)
			return -1;
		if (c == '%') {
			int high = i + 2 < len ? hex_digit(value[i + 1]) : -1;
			int low = i + 2 < len ? hex_digit(value[i + 2]) : -1;

			if (high < 0 || low < 0 || !(high | low))
				return -1;
			c = (char) (high << 4 | low);
			i += 2;
		} else if (!plain(c)) {
			return -1;
		}
		out[n++] = c;
	}
	out[n] = 0;
	return 0;
}

int nm_request_read(const char *text, struct nm_values *v, char message[NM_MESSAGE_MAX])
{
	char value[NM_VALUE_MAX], again[NM_REQUEST_MAX];
	const char *whole = text;
	size_t len = strnlen(text, NM_REQUEST_MAX);

	memset(v, 0, sizeof(*v));
	if (len >= NM_REQUEST_MAX) {
		snprintf(message, NM_MESSAGE_MAX,
			 "the job's request for VMs is longer than %d bytes: write a cluster file", NM_REQUEST_MAX - 1);
		return -1;
	}
	if (strncmp(text, FORMAT " ", strlen(FORMAT) + 1)) {
		snprintf(message, NM_MESSAGE_MAX,
			 "the job's request for VMs is not of format " FORMAT
			 ": are srun and this host of one version of nearmetal?");
		return -1;
	}
	text += strlen(FORMAT);
	while (*text == ' ') {
		size_t name = strcspn(++text, "= ");
		enum nm_key key = nm_key_find(text, name);
		size_t end;

		if (text[name] != '=' || key == NM_KEYS || v->origin[key] != NM_UNSET)
			goto broken;
		text += name + 1;
		end = strcspn(text, " ");
		if (decode(text, end, value) || nm_values_set(v, key, value, NM_FROM_OPTION, message))
			goto broken;
		text += end;
	}
	if (!*text && (v->origin[NM_VM] == NM_UNSET || nm_values_wanted(v)) && !nm_request_write(v, again) &&
	    !strcmp(again, whole))
		return 0;
broken:
	snprintf(message, NM_MESSAGE_MAX, "the job's request for VMs is broken: submit it again");
	return -1;
}
