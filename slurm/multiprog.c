#include <string.h>

#include "multiprog.h"

bool nm_multiprog(const char *cmdline, size_t len)
{
	const char *end = cmdline + len;

	for (const char *w = cmdline; w < end;) {
		size_t n = strnlen(w, (size_t) (end - w));

		if (n == 2 && !memcmp(w, "--", 2))
			return false;
		/* getopt accepts any prefix of the name that is unique among the options. */
		if (n >= 7 && n <= 12 && !memcmp(w, "--multi-prog", n))
			return true;
		w += n + 1;
	}
	return false;
}
