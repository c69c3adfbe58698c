/* Tests of the programs' common parts. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"
#include "region_map.h"
#include "summary.h"
#include "values.h"

static int failures;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static void test_values(void)
{
	uint64_t a, b;
	long n, m;
	double s;

	CHECK(value_size("x", "64KiB", 0, 1 << 20, &a) && a == 65536);
	CHECK(value_size("x", "1M", 0, 1 << 20, &a) && a == 1 << 20);
	CHECK(value_sizes("x", "0:4MiB", 4 << 20, &a, &b) && a == 0 && b == 4 << 20);
	CHECK(value_sizes("x", "8", 8, &a, &b) && a == 8 && b == 8);
	CHECK(value_counts("x", "5", 10, &n, &m) && n == 5 && m == 5);
	CHECK(value_counts("x", "5:6", 10, &n, &m) && n == 5 && m == 6);
	CHECK(value_seconds("x", "0.5", 0, 1, &s) && s == 0.5);

	static const char *const bad_sizes[] = {
		"", "-1", "x", "1T", "1KiBx", " 1", "+1", "99999999999999999999", "18446744073709551615K", "2M",
	};
	for (size_t i = 0; i < sizeof(bad_sizes) / sizeof(*bad_sizes); i++)
		CHECK(!value_size("x", bad_sizes[i], 0, 1 << 20, &a));
	CHECK(!value_sizes("x", "4:2", 8, &a, &b));
	CHECK(!value_sizes("x", "1:", 8, &a, &b));
	CHECK(!value_sizes("x", "1:2:3", 8, &a, &b));
	CHECK(!value_sizes("x", "1:9", 8, &a, &b));
	CHECK(!value_counts("x", "1:11", 10, &n, &m));
	CHECK(!value_counts("x", "9999999999999999999999", 10, &n, &m));
	CHECK(!value_count("x", "1 ", 0, 10, &n));
	CHECK(!value_count("x", "0", 1, 10, &n));
	CHECK(!value_seconds("x", "nan", 0, 1, &s));
	CHECK(!value_seconds("x", "2", 0, 1, &s));
}

static void test_summary(void)
{
	double v[200];
	struct summary s;

	for (int i = 0; i < 200; i++)
		v[i] = 200 - i; /* 1 to 200 */
	s = summarize(v, 200);
	CHECK(s.min == 1 && s.max == 200 && s.median == 100.5 && s.mean == 100.5 && s.p99 == 198);
	v[0] = 7;
	s = summarize(v, 1);
	CHECK(s.min == 7 && s.max == 7 && s.median == 7 && s.mean == 7 && s.p99 == 7);
	v[0] = 3, v[1] = 1, v[2] = 2;
	CHECK(summarize(v, 3).median == 2);
	CHECK(next_size(0) == 1 && next_size(1) == 2 && next_size(4096) == 8192);
}

static void test_json(void)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	json_string(f, "a\"b\\c\nd\x80");
	fclose(f);
	CHECK(!strcmp(text, "\"a\\\"b\\\\c\\u000ad\\u0080\""));
	free(text);
}

static void test_copy(void)
{
	enum { N = 10000 };
	static unsigned char from[N], to[N + 64];

	for (int i = 0; i < N; i++)
		from[i] = (unsigned char) (i * 7 + i / 256);
	for (size_t n = 0; n <= N; n += n < 300 ? 1 : 997)
		for (size_t offset = 0; offset < 3; offset++) {
			memset(to, 0xee, sizeof(to));
			copy_block(to + offset, from + offset, n - (n > 2 ? offset : 0));
			CHECK(!memcmp(to + offset, from + offset, n - (n > 2 ? offset : 0)));
			CHECK(to[offset + n] == 0xee);
		}
}

static void test_cached(void)
{
	CHECK(read_times_cached((struct read_times) { .region = 0.4, .ordinary = 0.4 }));
	CHECK(read_times_cached((struct read_times) { .region = 3, .ordinary = 0.2 }));
	CHECK(read_times_cached((struct read_times) { .region = 40, .ordinary = 10 })); /* emulated */
	CHECK(!read_times_cached((struct read_times) { .region = 90, .ordinary = 0.4 }));
	CHECK(!read_times_cached((struct read_times) { .region = 800, .ordinary = 2 }));
}

/* A region is accepted, and other files are rejected. */
static void test_region(void)
{
	struct nm_region_header saved;
	struct region r, again;
	char path[64];

	CHECK(region_temporary(&r, "/dev/shm", 1 << 20));
	CHECK(r.header.size_bytes == 1 << 20 && r.scratch == r.map + r.header.scratch_offset);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", r.fd);
	CHECK(region_open(&again, path));
	CHECK(!memcmp(&again.header, &r.header, sizeof(r.header)));
	region_close(&again);

	memcpy(&saved, r.map, sizeof(saved));
	((struct nm_region_header *) r.map)->scratch_bytes = 1ULL << 40;
	CHECK(!region_open(&again, path));
	memcpy(r.map, &saved, sizeof(saved));
	CHECK(!ftruncate(r.fd, 8192)); /* smaller than stated in the header */
	CHECK(!region_open(&again, path));
	CHECK(!ftruncate(r.fd, 0));
	CHECK(!region_open(&again, path));
	region_close(&r);
	CHECK(!region_open(&again, "/dev/null"));
	CHECK(!region_open(&again, "/nonexistent"));
	CHECK(!region_temporary(&again, "/nonexistent", 1 << 20));
}

int main(void)
{
	program_name("test_units (complaints are expected)");
	test_values();
	test_summary();
	test_json();
	test_copy();
	test_cached();
	test_region();
	return failures != 0;
}
