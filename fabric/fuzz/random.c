/*
 * random.c SECONDS [SEED [FILE...]]: runs the fuzz target without libFuzzer, with the files' contents and then with
 * random inputs. The same seed makes the same inputs, as many as the time allows. FUZZ_EACH in the environment:
 * seconds, instead of SECONDS.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t next(uint64_t *x)
{
	/* xorshift64*: Marsaglia, Xorshift RNGs, Journal of Statistical Software 8 (2003). */
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 2685821657736338717ULL;
}

/* Returns the seconds of a clock that nobody sets. */
static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

int main(int argc, char **argv)
{
	const char *each = getenv("FUZZ_EACH");
	time_t end = now() + atol(each && *each ? each : argc > 1 ? argv[1] : "10");
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, x, inputs = 0;
	uint8_t data[600];
	int i;

	for (i = 3; i < argc; i++) {
		FILE *file = fopen(argv[i], "rb");

		if (!file) {
			perror(argv[i]);
			return 1;
		}
		LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof(data), file));
		fclose(file);
		inputs++;
	}
	while (now() < end) {
		size_t len, k;

		x = (seed + ++inputs) * 0x9e3779b97f4a7c15ULL | 1;
		len = next(&x) % sizeof(data);
		for (k = 0; k < len; k++)
			data[k] = (uint8_t) (next(&x) >> 32);
		LLVMFuzzerTestOneInput(data, len);
	}
	printf("%llu inputs, seed %llu\n", (unsigned long long) inputs, (unsigned long long) seed);
	return 0;
}
