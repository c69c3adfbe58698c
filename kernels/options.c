#include "options.h"

#include <stdio.h>

#include "values.h"

int next_option(int argc, char **argv, const char *letters, const struct option *list, const char *help, int *status)
{
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, letters, list, NULL);
	*status = -1;
	switch (c) {
	case 'h':
		if (first_rank())
			fputs(help, stdout);
		*status = 0;
		return -1;
	case '?':
		complain("%s: no such option, or its value is missing; see --help", argv[optind - 1]);
		*status = 2;
		return -1;
	case -1:
		if (optind < argc) {
			complain("%s: this program takes options only; see --help", argv[optind]);
			*status = 2;
		}
		return -1;
	default: return c;
	}
}
