/*
 * fence: PMIx's fences without data, of two ranks. Rank 1 begins each fence some time after rank 0 has begun it: rank 0
 * then has to wait. Says on rank 0 "N of N fences waited".
 */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { FENCES = 5, LATE_NS = 100000000 };

static void make(const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f) {
		perror(path);
		exit(1);
	}
	fclose(f);
}

int main(void)
{
	static const struct timespec late = { 0, LATE_NS }, soon = { 0, 1000000 };
	pmix_proc_t me;
	int waited = 0;
	char in[32], out[32];

	if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) {
		fprintf(stderr, "fence: PMIx_Init failed\n");
		return 1;
	}
	for (int i = 0; i < FENCES; i++) {
		snprintf(in, sizeof(in), "fence.%d.in", i);
		snprintf(out, sizeof(out), "fence.%d.late", i);
		if (!me.rank) {
			make(in);
		} else {
			while (access(in, F_OK))
				nanosleep(&soon, NULL);
			nanosleep(&late, NULL);
			make(out);
		}
		if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS) {
			fprintf(stderr, "fence: rank %u: PMIx_Fence failed\n", me.rank);
			return 1;
		}
		if (!me.rank)
			waited += !access(out, F_OK);
	}
	if (!me.rank)
		printf("%d of %d fences waited\n", waited, FENCES);
	return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
