/* Tests of the parsers of options and requests. */
#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "cgroup.h"
#include "environ.h"
#include "multiprog.h"
#include "request.h"
#include "state.h"

static int failures;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static bool reads(enum nm_key key, const char *text, const char *want)
{
	char out[NM_VALUE_MAX], message[NM_MESSAGE_MAX] = "";
	int rc = nm_value_read(key, text, out, message);

	if (!want)
		return rc == -1 && *message && !strchr(message, '\n');
	return !rc && !strcmp(out, want);
}

static void test_values(void)
{
	CHECK(reads(NM_MEMORY, "2GiB", "2147483648"));
	CHECK(reads(NM_MEMORY, "2g", "2147483648"));
	CHECK(reads(NM_MEMORY, "256M", "268435456"));
	CHECK(reads(NM_MEMORY, "127MiB", NULL));
	CHECK(reads(NM_MEMORY, "99999999999999999999G", NULL));
	CHECK(reads(NM_MEMORY, "9223372036854775807T", NULL));
	CHECK(reads(NM_MEMORY, "1G2", NULL));
	CHECK(reads(NM_MEMORY, "-1", NULL));
	CHECK(reads(NM_MEMORY, "", NULL));
	CHECK(reads(NM_REGION, "0", "0"));
	CHECK(reads(NM_REGION, "64MiB", "67108864"));
	CHECK(reads(NM_REGION, "48MiB", NULL));
	CHECK(reads(NM_VMS, "1024", "1024"));
	CHECK(reads(NM_VMS, "1025", NULL));
	CHECK(reads(NM_VMS, "1 ", NULL));
	CHECK(reads(NM_ROOT, "host", "host"));
	CHECK(reads(NM_ROOT, "/a\nb", NULL));
	CHECK(reads(NM_ROOT, "a", NULL));
	CHECK(reads(NM_VF, "cx:2", "cx:2"));
	CHECK(reads(NM_VF, "2", "2"));
	CHECK(reads(NM_VF, "c x:2", NULL));
	CHECK(reads(NM_VF, "cx:", NULL));
	CHECK(reads(NM_PAGES, "2M", "2MiB"));
	CHECK(reads(NM_PAGES, "1GiB", "1GiB"));
	CHECK(reads(NM_PAGES, "ordinary", "ordinary"));
	CHECK(reads(NM_PAGES, "4KiB", NULL));
	CHECK(reads(NM_PAGES, "", NULL));
	CHECK(reads(NM_KEEP, "step", "step"));
	CHECK(reads(NM_KEEP, "x\n\033[31m", NULL));
	CHECK(nm_key_find("vms", 3) == NM_VMS && nm_key_find("vmsx", 4) == NM_KEYS && nm_key_find("", 0) == NM_KEYS);
}

static void test_spec(void)
{
	static struct nm_values v;
	char message[NM_MESSAGE_MAX];

	CHECK(!nm_values_spec(&v, "vms=2,memory=1GiB", NM_FROM_SPEC, message));
	CHECK(nm_values_number(&v, NM_VMS, 0) == 2 && nm_values_number(&v, NM_MEMORY, 0) == 1 << 30);
	CHECK(!nm_values_set(&v, NM_VMS, "3", NM_FROM_OPTION, message) && nm_values_number(&v, NM_VMS, 0) == 3);
	CHECK(!nm_values_set(&v, NM_VMS, "4", NM_FROM_ENV, message) && nm_values_number(&v, NM_VMS, 0) == 3);
	CHECK(nm_values_spec(&v, "vms=2,,", NM_FROM_SPEC, message) == -1);
	CHECK(nm_values_spec(&v, "vm=1", NM_FROM_SPEC, message) == -1);
	CHECK(nm_values_spec(&v, "file=/etc/shadow", NM_FROM_SPEC, message) == -1);
	CHECK(nm_values_spec(&v, "=", NM_FROM_SPEC, message) == -1);
	CHECK(!nm_values_spec(&v, "/a/b=c.yaml", NM_FROM_SPEC, message) && !strcmp(v.text[NM_FILE], "/a/b=c.yaml"));
}

static void test_request(void)
{
	static struct nm_values v, w;
	char text[NM_REQUEST_MAX], message[NM_MESSAGE_MAX];

	CHECK(!nm_values_set(&v, NM_VM, "1", NM_FROM_OPTION, message));
	CHECK(!nm_values_set(&v, NM_FILE, "/home/u/a b%.yaml", NM_FROM_OPTION, message));
	CHECK(!nm_request_write(&v, text) && !strcmp(text, "1 vm=1 file=/home/u/a%20b%25.yaml"));
	CHECK(!nm_request_read(text, &w, message) && !strcmp(w.text[NM_FILE], "/home/u/a b%.yaml") &&
	      nm_values_wanted(&w));
	CHECK(nm_request_read("", &w, message) == -1);
	CHECK(nm_request_read("2 vm=1", &w, message) == -1);
	CHECK(nm_request_read("1 vm=1 vm=1", &w, message) == -1);
	CHECK(nm_request_read("1 file=/a%00b", &w, message) == -1);
	CHECK(nm_request_read("1 file=/a%2", &w, message) == -1);
	CHECK(nm_request_read("1 file=/a%", &w, message) == -1);
	CHECK(nm_request_read("1 file=/a\tb", &w, message) == -1);
	CHECK(nm_request_read("1 file=etc", &w, message) == -1);
	CHECK(nm_request_read("1 what=1", &w, message) == -1);
}

/* Expand the notation of testdata/requests.txt. */
static void expand(const char *text, char *out, size_t size)
{
	size_t n = 0;

	while (*text && n + 1 < size) {
		unsigned int byte, times;
		int len = 0;

		if (sscanf(text, "\\x%2x%n", &byte, &len) == 1 && len == 4) {
			out[n++] = (char) byte;
			text += len;
		} else if (*text == '{' && sscanf(text, "{%*[^*]*%u}%n", &times, &len) == 1 && len) {
			for (; times && n + 1 < size; times--)
				for (const char *p = text + 1; *p != '*' && n + 1 < size; p++)
					out[n++] = *p;
			text += len;
		} else {
			out[n++] = *text++;
		}
	}
	out[n] = 0;
}

/* Tests the cases that are also tested with the parser in Go. */
static void test_cases(const char *file)
{
	static char line[1024], text[16384];
	static struct nm_values v;
	char message[NM_MESSAGE_MAX], again[NM_REQUEST_MAX];
	FILE *f = fopen(file, "r");
	int cases = 0;

	CHECK(f != NULL);
	while (f && fgets(line, sizeof(line), f)) {
		bool yes = !strncmp(line, "yes ", 4);

		line[strcspn(line, "\n")] = 0;
		if (!*line || *line == '#')
			continue;
		expand(line + strcspn(line, " ") + (strchr(line, ' ') != NULL), text, sizeof(text));
		cases++;
		*message = 0;
		if (nm_request_read(text, &v, message) == (yes ? 0 : -1) && yes == !*message &&
		    (!yes || (!nm_request_write(&v, again) && !strcmp(again, text))))
			continue;
		fprintf(stderr, "%s: %s: %s\n", file, line, message);
		failures++;
	}
	CHECK(cases > 80);
	if (f)
		fclose(f);
}

static void test_multiprog(void)
{
	static const char with[] = "srun\0-n2\0--multi-prog\0conf";
	static const char later[] = "srun\0--\0app\0--multi-prog";
	static const char without[] = "srun\0--mpi=pmi2\0app";

	CHECK(nm_multiprog(with, sizeof(with)));
	CHECK(!nm_multiprog(later, sizeof(later)));
	CHECK(!nm_multiprog(without, sizeof(without)));
	CHECK(!nm_multiprog("", 0));
}

/* Enter a new mount namespace, in which this process may mount. Returns whether that worked. */
static bool own_mounts(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char map[64];
	int fd;

	if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS))
		return false;
	if (uid) {
		static const char *const files[] = { "/proc/self/setgroups", "/proc/self/uid_map",
						     "/proc/self/gid_map" };

		for (int i = 0; i < 3; i++) {
			snprintf(map, sizeof(map), i ? "0 %u 1" : "deny", (unsigned int) (i == 1 ? uid : gid));
			fd = open(files[i], O_WRONLY);
			if (fd < 0 || write(fd, map, strlen(map)) < 0)
				return false;
			close(fd);
		}
	}
	return !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void) st;
	(void) flag;
	(void) ftw;
	return remove(path);
}

static void remove_all(const char *path)
{
	CHECK(!nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS));
}

/* Everything that a user may do to the directory of a job's clusters; it must be removable all the same. */
static void attack(const char *run)
{
	static char block[1 << 20];
	char path[300];
	int fd, deep = 0, files = 0;
	ssize_t n;

	/* The directory accepts a limited number of bytes and files; the host's /run is not affected. */
	snprintf(path, sizeof(path), "%s/full", run);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0);
	for (int i = 0; i < 1000 && (n = write(fd, block, sizeof(block))) > 0; i++)
		;
	CHECK(n < 0 && errno == ENOSPC);
	close(fd);
	CHECK(!unlink(path));
	for (; files < 100000; files++) {
		snprintf(path, sizeof(path), "%s/f%d", run, files);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	CHECK(errno == ENOSPC && files > 1000);
	while (files-- > 0) {
		snprintf(path, sizeof(path), "%s/f%d", run, files);
		CHECK(!unlink(path));
	}
	/* Deeper than any path, and closed at the top. */
	fd = open(run, O_RDONLY | O_DIRECTORY);
	for (; deep < 2000 && !mkdirat(fd, "d", 0700); deep++) {
		int below = openat(fd, "d", O_RDONLY | O_DIRECTORY);

		close(fd);
		fd = below;
	}
	CHECK(deep == 2000);
	close(fd);
	/* Another file system in it, as a user could mount by FUSE. */
	snprintf(path, sizeof(path), "%s/other", run);
	CHECK(!mkdir(path, 0700) && !mount("other", path, "tmpfs", 0, NULL));
	CHECK(!mount("other", run, "tmpfs", 0, NULL));
	CHECK(!chmod(run, 0));
}

static ssize_t read_region(const char *state, const struct nm_job *job, char *text)
{
	return nm_state_read_file(state, job, NM_FILE_REGION, text, NM_REGION_MAX);
}

/* Tests that files that a user leaves in the job's directory are removed, but not the targets of links in it. */
static void test_state(void)
{
	struct nm_job job = { .id = 7, .node = "n1", .request = "1 vm=1", .dir = "/home" }, got;
	char top[] = "/tmp/nm-state-XXXXXX", state[64], path[256], text[NM_RESULT_MAX];
	struct stat st;
	int fd, writer;

	job.uid = getuid();
	job.gid = getgid();
	CHECK(mkdtemp(top) != NULL);
	snprintf(state, sizeof(state), "%s/s", top);
	setenv("SLURMD_NODENAME", "n1", 1);
	setenv("SLURM_CONF", "/etc/slurm/slurm.conf", 1);
	CHECK(nm_state_read(state, 7, &got) == 0);
	CHECK(!nm_state_create(state, &job));
	CHECK(!nm_state_create(state, &job)); /* a second time */
	CHECK(nm_state_read(state, 7, &got) == 1 && !strcmp(got.request, "1 vm=1") && !strcmp(got.dir, "/home") &&
	      got.uid == getuid());
	CHECK(nm_state_read_file(state, &job, NM_FILE_RESULT, text, NM_RESULT_MAX) == 0);
	CHECK(!nm_state_write_file(state, &job, NM_FILE_RESULT, "ready job\n"));
	CHECK(nm_state_read_file(state, &job, NM_FILE_RESULT, text, NM_RESULT_MAX) == 10);
	/* Files are never read partly, and an unreadable file is not treated as missing. */
	CHECK(read_region(state, &job, text) == 0 && !*text);
	snprintf(text, sizeof(text), "region:%0100d", 1);
	CHECK(!nm_state_write_file(state, &job, NM_FILE_REGION, text));
	CHECK(read_region(state, &job, text) == -1 && errno == EFBIG && !*text);
	CHECK(!nm_state_write_file(state, &job, NM_FILE_REGION, "region:1") && read_region(state, &job, text) == 8);
	snprintf(path, sizeof(path), "%s/7.n1/region", state);
	CHECK(!unlink(path) && !symlink("request", path) && read_region(state, &job, text) == -1 && errno == ELOOP);
	CHECK(!unlink(path) && !mkdir(path, 0700) && read_region(state, &job, text) == -1 && !rmdir(path));
	snprintf(path, sizeof(path), "%s/keep", top);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/7.n1/run", state);
	CHECK(!stat(path, &st) && st.st_uid == getuid() && (st.st_mode & 07777) == 0700);
	snprintf(path, sizeof(path), "%s/7.n1/run/link", state);
	CHECK(!symlink(top, path));
	/* A process that still writes. */
	snprintf(path, sizeof(path), "%s/7.n1/run/open", state);
	writer = open(path, O_CREAT | O_WRONLY, 0600);
	CHECK(writer >= 0);
	snprintf(path, sizeof(path), "%s/7.n1/run", state);
	attack(path);
	CHECK(!nm_state_remove(state, 7, "n1") && !nm_state_remove(state, 7, "n1"));
	CHECK(write(writer, "x", 1) == 1);
	close(writer);
	CHECK(nm_state_read(state, 7, &got) == 0);
	snprintf(path, sizeof(path), "%s/7.n1", state);
	CHECK(access(path, F_OK) && errno == ENOENT);
	snprintf(path, sizeof(path), "%s/keep", top);
	CHECK(!access(path, F_OK));
	/* If it is not mounted in this namespace, it is mounted here. */
	CHECK(!nm_state_create(state, &job));
	snprintf(path, sizeof(path), "%s/7.n1/run", state);
	CHECK(!nm_state_run_here(state, &job) && !umount(path) && umount(path) == -1);
	CHECK(!nm_state_run_here(state, &job) && !umount(path));
	CHECK(!nm_state_remove(state, 7, "n1"));
	/* A remaining cgroup is recorded until the job runs again. */
	snprintf(path, sizeof(path), "%s/cgroups-7.n1", state);
	CHECK(!nm_state_write_left(state, &job) && !nm_state_write_left(state, &job));
	CHECK(!stat(path, &st) && (st.st_mode & 07777) == 0600 &&
	      st.st_size == snprintf(text, sizeof(text), "%u\n", getuid()));
	CHECK(!nm_state_create(state, &job) && access(path, F_OK) && errno == ENOENT);
	CHECK(!nm_state_remove(state, 7, "n1"));
	/* A directory that others may write to is not accepted as root's. */
	CHECK(!chmod(state, 0777) && nm_state_create(state, &job) == -1);
	setenv("SLURMD_NODENAME", "../n1", 1);
	CHECK(nm_state_node(text) == -1);
	remove_all(top);
}

/* Tests /proc/PID/cgroup of the extern step's process: old hierarchies, the unified one, another job's. */
static void test_cgroups(void)
{
	static const char old[] = "11:memory:/slurm_n1/uid_1000/job_17/step_extern/task_0\n"
				  "9:cpuacct:/slurm_n1/uid_1000/job_17/step_extern/task_0\n"
				  "8:freezer:/slurm_n1/uid_1000/job_17/step_extern\n"
				  "2:pids:/\n"
				  "1:name=systemd:/user.slice\n"
				  "0::/\n";
	static const char unified[] = "0::/system.slice/slurmstepd.scope/job_17/step_extern/user/task_special\n";
	char files[NM_CGROUPS_MAX][512];

	CHECK(nm_cgroup_files(old, 17, false, files, NM_CGROUPS_MAX) == 3);
	CHECK(!strcmp(files[0], "/sys/fs/cgroup/memory/slurm_n1/uid_1000/job_17/step_extern/task_0/cgroup.procs"));
	CHECK(!strcmp(files[1], "/sys/fs/cgroup/cpuacct/slurm_n1/uid_1000/job_17/step_extern/task_0/cgroup.procs"));
	CHECK(!strcmp(files[2], "/sys/fs/cgroup/freezer/slurm_n1/uid_1000/job_17/cgroup.procs"));
	CHECK(nm_cgroup_files(old, 17, true, files, NM_CGROUPS_MAX) == 3);
	CHECK(!strcmp(files[2], "/sys/fs/cgroup/freezer/slurm_n1/uid_1000/job_17/step_extern/cgroup.procs"));
	CHECK(nm_cgroup_files(unified, 17, false, files, NM_CGROUPS_MAX) == 1);
	CHECK(!strcmp(
		files[0],
		"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_extern/user/task_special/cgroup.procs"));
	CHECK(nm_cgroup_files(old, 1, false, files, NM_CGROUPS_MAX) == 0);
	CHECK(nm_cgroup_files(old, 17, false, files, 1) == 1);
	CHECK(nm_cgroup_files("", 17, false, files, NM_CGROUPS_MAX) == 0);
	CHECK(nm_cgroup_of_job(old, 17) && nm_cgroup_of_job("8:freezer:/slurm_n1/uid_0/job_17\n", 17));
	CHECK(nm_cgroup_of_job("0::/system.slice/n1_slurmstepd.scope/sABC/step_extern/slurm\n", 17));
	CHECK(!nm_cgroup_of_job("8:freezer:/slurm_n1/uid_0/job_170\n0::/\n", 17) && !nm_cgroup_of_job("", 17));
	CHECK(nm_cgroup_files("8:freezer", 17, false, files, NM_CGROUPS_MAX) == 0);
}

/* Tests that a variable is found anywhere in an environment, and that a similar one is not. */
static void test_environ(void)
{
	static const char mark[] = "NEARMETAL_SLURM_JOB=/run/s/7.n1";
	static const struct {
		const char *before, *after;
		bool found;
	} cases[] = {
		{ "A=1", "B=2", true }, { "", "", true },
		{ "A=1", "", true },	{ "NEARMETAL_SLURM_JOB=/run/s/7.n", "", true },
		{ NULL, "1", false },	{ NULL, "NEARMETAL_SLURM_JOB=/run/s/7.n1", false },
	};
	static char filler[70000];
	FILE *f = tmpfile();

	CHECK(f != NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (int big = 0; big < 2; big++) {
			rewind(f);
			CHECK(!ftruncate(fileno(f), 0));
			memset(filler, 'x', sizeof(filler) - 1);
			if (big)
				fwrite(filler, sizeof(filler), 1, f);
			if (cases[i].before)
				fwrite(cases[i].before, strlen(cases[i].before) + 1, 1, f);
			fwrite(mark, cases[i].before ? sizeof(mark) : sizeof(mark) - 1, 1, f);
			fwrite(cases[i].after, strlen(cases[i].after) + 1, 1, f);
			fflush(f);
			lseek(fileno(f), 0, SEEK_SET);
			CHECK(nm_environ_has(fileno(f), mark) == cases[i].found);
		}
	}
	/* All memory of a process, without an end. */
	int zeros = open("/dev/zero", O_RDONLY);

	CHECK(zeros >= 0 && !nm_environ_has(zeros, mark));
	close(zeros);
	fclose(f);
}

static int exists(int dir, const char *name)
{
	return !faccessat(dir, name, F_OK, 0);
}

/*
 * Tests that a job's cgroups are removed with those of its steps, and that another job's, and then the user's own,
 * remain.
 */
static void test_cgroup_remove(void)
{
	static const char *const made[] = {
		"memory",
		"memory/slurm_n1",
		"memory/slurm_n1/uid_1000",
		"memory/slurm_n1/uid_1000/job_17",
		"memory/slurm_n1/uid_1000/job_17/step_extern",
		"memory/slurm_n1/uid_1000/job_17/step_extern/task_0",
		"memory/slurm_n1/uid_1000/job_18",
		"freezer",
		"freezer/slurm",
		"freezer/slurm/uid_1000",
		"freezer/slurm/uid_1000/job_17",
		/* As Slurm 22.05 creates them with cgroup/v2. */
		"system.slice",
		"system.slice/n1_slurmstepd.scope",
		"system.slice/n1_slurmstepd.scope/system",
		"system.slice/n1_slurmstepd.scope/job_17",
		"system.slice/n1_slurmstepd.scope/job_17/step_extern",
		"system.slice/n1_slurmstepd.scope/job_17/step_extern/slurm",
		"system.slice/n1_slurmstepd.scope/job_17/step_extern/user",
		"system.slice/n1_slurmstepd.scope/job_17/step_extern/user/task_special",
		"system.slice/n1_slurmstepd.scope/job_18",
		"system.slice/slurmstepd.scope",
		"system.slice/slurmstepd.scope/job_17",
	};
	char root[] = "/tmp/nm_cgroup_XXXXXX";
	struct nm_job job = { .id = 17, .node = "n1", .uid = 1000 };
	int dir;

	CHECK(mkdtemp(root));
	dir = open(root, O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0);
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++)
		CHECK(!mkdirat(dir, made[i], 0755));
	CHECK(!nm_cgroup_remove(root, &job));
	CHECK(!exists(dir, "memory/slurm_n1/uid_1000/job_17"));
	CHECK(exists(dir, "memory/slurm_n1/uid_1000/job_18"));
	CHECK(!exists(dir, "freezer/slurm/uid_1000"));
	CHECK(exists(dir, "freezer/slurm"));
	CHECK(!exists(dir, "system.slice/n1_slurmstepd.scope/job_17"));
	CHECK(exists(dir, "system.slice/n1_slurmstepd.scope/job_18") &&
	      exists(dir, "system.slice/n1_slurmstepd.scope/system"));
	CHECK(!exists(dir, "system.slice/slurmstepd.scope/job_17") && exists(dir, "system.slice/slurmstepd.scope"));
	CHECK(!nm_cgroup_remove(root, &job));
	close(dir);
	remove_all(root);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	test_cgroups();
	test_environ();
	test_cgroup_remove();
	test_values();
	test_spec();
	test_request();
	test_cases(argc == 2 ? argv[1] : "");
	test_multiprog();
	if (own_mounts())
		test_state();
	else
		fprintf(stderr, "no test of a job's folder: this process may not make a mount namespace\n");
	return failures != 0;
}
