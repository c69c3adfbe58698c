#include "summary.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

struct summary summarize(double *samples, size_t n)
{
	struct summary s = { 0 };
	double sum = 0;

	qsort(samples, n, sizeof(*samples), compare);
	for (size_t i = 0; i < n; i++)
		sum += samples[i];
	s.min = samples[0];
	s.max = samples[n - 1];
	s.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
	s.mean = sum / (double) n;
	s.p99 = samples[(n * 99 + 99) / 100 - 1];
	return s;
}

void json_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		unsigned char c = (unsigned char) *s;

		if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			fprintf(f, "\\u%04x", c);
		else
			fputc(c, f);
	}
	fputc('"', f);
}
