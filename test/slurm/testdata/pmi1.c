/*
 * A rank that knows of PMI-1 by PMI_FD, PMI_RANK and PMI_SIZE alone, as the oldest clients do: each tells
 * the others its host and reads what they say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *in;
static int fd;

/* Say a line, read the answer; the value behind key in it. */
static const char *ask(const char *line, const char *want, const char *key)
{
	static char answer[4096], value[1024];
	const char *p;

	if (write(fd, line, strlen(line)) < 0 || !fgets(answer, sizeof(answer), in)) {
		fprintf(stderr, "%s: no answer\n", line);
		exit(1);
	}
	if (strncmp(answer, want, strlen(want))) {
		fprintf(stderr, "%s: %s", line, answer);
		exit(1);
	}
	value[0] = 0;
	if (key && (p = strstr(answer, key)))
		sscanf(p + strlen(key), "%1023s", value);
	return value;
}

int main(void)
{
	const char *number = getenv("PMI_FD"), *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
	char host[256] = "", kvs[256], line[1024];

	if (!number || !rank || !size || getenv("PMI_PORT")) {
		fprintf(stderr, "not PMI_FD, PMI_RANK and PMI_SIZE alone\n");
		return 1;
	}
	fd = atoi(number);
	in = fdopen(dup(fd), "r");
	gethostname(host, sizeof(host) - 1);
	ask("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init", NULL);
	snprintf(kvs, sizeof(kvs), "%s", ask("cmd=get_my_kvsname\n", "cmd=my_kvsname", "kvsname="));
	snprintf(line, sizeof(line), "cmd=put kvsname=%s key=host%s value=%s\n", kvs, rank, host);
	ask(line, "cmd=put_result rc=0", NULL);
	ask("cmd=barrier_in\n", "cmd=barrier_out", NULL);
	for (int i = 0; i < atoi(size); i++) {
		snprintf(line, sizeof(line), "cmd=get kvsname=%s key=host%d\n", kvs, i);
		if (!atoi(rank))
			printf("rank %d of %s is on %s\n", i, size, ask(line, "cmd=get_result rc=0", "value="));
		else
			ask(line, "cmd=get_result rc=0", "value=");
	}
	ask("cmd=finalize\n", "cmd=finalize_ack", NULL);
	return 0;
}
