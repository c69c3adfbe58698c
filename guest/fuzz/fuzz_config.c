/* libFuzzer target: the configuration's parser. */
#include "../config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c;
	char why[256] = "", *text = malloc(size + 1);

	memcpy(text, data, size);
	if (!config_parse(&c, text, size, why, sizeof(why)) && !*why)
		abort(); /* a rejection must have a reason */
	config_free(&c);
	free(text);
	return 0;
}
