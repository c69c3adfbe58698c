#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void (*on_die)(const char *text);

static void line(const char *text)
{
	char b[1100];
	int n = snprintf(b, sizeof(b), "nearmetal-agent: %s\n", text);

	if (n >= (int) sizeof(b))
		n = sizeof(b) - 1;
	if (write(STDERR_FILENO, b, n) < 0)
		return; /* nobody is left to report to */
}

void say(const char *format, ...)
{
	char b[1024];
	va_list a;

	va_start(a, format);
	vsnprintf(b, sizeof(b), format, a);
	va_end(a);
	line(b);
}

void die(const char *format, ...)
{
	char b[1024];
	va_list a;

	va_start(a, format);
	vsnprintf(b, sizeof(b), format, a);
	va_end(a);
	line(b);
	if (on_die)
		on_die(b);
	_exit(1);
}
