/* libFuzzer target: the argument of --vm, a request, and a command line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../multiprog.h"
#include "../request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct nm_values v, again;
	char message[NM_MESSAGE_MAX] = "", line[NM_REQUEST_MAX], *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	nm_multiprog(text, size);
	memset(&v, 0, sizeof(v));
	if (nm_values_spec(&v, text, NM_FROM_SPEC, message) && !*message)
		abort(); /* a rejection has a message */
	if (!nm_request_read(text, &v, message)) {
		/* Values that were read can be written, and read again with the same result. */
		if (nm_request_write(&v, line) || nm_request_read(line, &again, message) ||
		    memcmp(v.origin, again.origin, sizeof(v.origin)))
			abort();
		for (int k = 0; k < NM_KEYS; k++)
			if (strcmp(v.text[k], again.text[k]))
				abort();
	}
	free(text);
	return 0;
}
