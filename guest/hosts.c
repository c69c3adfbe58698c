#include "init.h"
#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns whether a line of /etc/hosts has one of the names that the agent sets. */
static bool names_ours(const struct config *c, const char *line)
{
	char copy[1024], *save = NULL, *w;
	bool loopback;

	if (strlen(line) >= sizeof(copy))
		return false;
	strcpy(copy, line);
	copy[strcspn(copy, "#\n")] = 0;
	w = strtok_r(copy, " \t", &save);
	loopback = w && (!strncmp(w, "127.", 4) || !strcmp(w, "::1"));
	while ((w = strtok_r(NULL, " \t", &save))) {
		if (loopback && *c->host_name && !strcmp(w, c->host_name))
			return true;
		for (size_t i = 0; i < c->nhosts; i++) {
			const char *at = strstr(c->hosts[i], w);
			size_t n = strlen(w);

			for (; at; at = strstr(at + 1, w))
				if (at != c->hosts[i] && at[-1] == ' ' && (!at[n] || at[n] == ' '))
					return true;
		}
	}
	return false;
}

/* Writes the agent's own lines first, then those of the root's file without its names. */
void hosts_write(const struct config *c, const char *old, const char *file)
{
	FILE *in = fopen(old, "re"), *out = fopen(file, "we");
	bool localhost = false;
	char line[1024];

	if (!out)
		die("%s: %s", file, strerror(errno));
	for (size_t i = 0; i < c->nhosts; i++)
		fprintf(out, "%s\n", c->hosts[i]);
	while (in && fgets(line, sizeof(line), in)) {
		if (names_ours(c, line))
			continue;
		localhost = localhost || !strncmp(line, "127.0.0.1", 9);
		fputs(line, out);
	}
	if (!localhost)
		fputs("127.0.0.1 localhost\n", out);
	if (in)
		fclose(in);
	if (fclose(out))
		die("%s: %s", file, strerror(errno));
}
