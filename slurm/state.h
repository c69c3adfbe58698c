/*
 * Root's files for a job on a host, between the prolog and the epilog:
 *
 *   STATE/JOB.NODE/request   the job's request, see struct nm_job    (root, 0600)
 *   STATE/JOB.NODE/result    the result of its VMs' boot             (root, 0600)
 *   STATE/JOB.NODE/devices   PCI addresses of its VFs, one per line  (root, 0600)
 *   STATE/JOB.NODE/region    its limit of the GRES that counts regions, NAME:BYTES; missing
 *                            if the site does not count them         (root, 0600)
 *   STATE/JOB.NODE/hosts     its secret, followed by its nodes, NAME=ADDR, separated by
 *                            blanks; missing for a job of one node   (root, 0600)
 *   STATE/JOB.NODE/extern    process id and start time of the extern step's own process
 *                            (/proc/PID/stat, field 22)              (root, 0600)
 *   STATE/JOB.NODE/conf      path of the slurm.conf of its Slurm     (root, 0600)
 *   STATE/JOB.NODE/run/      the job's clusters ($NEARMETAL_RUNTIME_DIR; the user, 0700): run.h
 *
 * and after the epilog, if a cgroup of the job could not be removed, until a sweep removes it:
 *
 *   STATE/cgroups-JOB.NODE   the id of its user                      (root, 0600)
 */
#ifndef NM_STATE_H_
#define NM_STATE_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "request.h"

/* The prefix of the names of files that record remaining cgroups. */
#define NM_LEFT "cgroups-"

/* The maximum size of the stored texts, in bytes, including the final zero byte. */
#define NM_RESULT_MAX  (16 << 10)
#define NM_DEVICES_MAX 4096
#define NM_REGION_MAX  96
#define NM_HOSTS_MAX   (64 << 10)

struct nm_job {
	uint32_t id;
	char node[128]; /* Slurm's name of this host */
	uid_t uid;
	gid_t gid;
	char request[NM_REQUEST_MAX]; /* checked */
	char dir[1024];		      /* working directory of the job: text from the user */
};

/* Read this host's node name in Slurm from the environment. Returns 0, or -1 if it is missing or invalid. */
int nm_state_node(char node[128]);

/* Create a new directory for a job, with its request. Returns 0, or -1 with errno. */
int nm_state_create(const char *state, const struct nm_job *job);

/* Read the request of a job on this host. Returns 1, 0 if there is none, or -1 with errno. */
int nm_state_read(const char *state, uint32_t id, struct nm_job *job);

/* Text files of a job. The first line of a result is "ready CLUSTER", "failed user" or "failed host". */
enum nm_state_file { NM_FILE_RESULT, NM_FILE_DEVICES, NM_FILE_REGION, NM_FILE_HOSTS, NM_FILE_EXTERN };

/* Replace such a file. Returns 0, or -1 with errno. */
int nm_state_write_file(const char *state, const struct nm_job *job, enum nm_state_file what, const char *text);

/*
 * Read such a file into text, which has size bytes: NM_RESULT_MAX and so on. Returns its length, 0 if there is none,
 * or -1 with errno.
 */
ssize_t nm_state_read_file(const char *state, const struct nm_job *job, enum nm_state_file what, char *text,
			   size_t size);

/*
 * Write and read the number and start time of the extern step's process. Reading returns 1 if they are known, else 0.
 */
int nm_state_write_extern(const char *state, const struct nm_job *job, pid_t pid, unsigned long long start);
int nm_state_read_extern(const char *state, const struct nm_job *job, pid_t *pid, unsigned long long *start);

/* Record that a cgroup of the job remains. Returns 0, or -1 with errno. */
int nm_state_write_left(const char *state, const struct nm_job *job);

/* Remove the files of a job. Returns 0, also if there are none, or -1 with errno. */
int nm_state_remove(const char *state, uint32_t id, const char *node);

/* Mount a job's run directory if this process does not see it (run.h). Returns 0, or -1 with errno. */
int nm_state_run_here(const char *state, const struct nm_job *job);

/* The $NEARMETAL_RUNTIME_DIR of a job. Returns 0, or -1 if it is too long. */
int nm_state_run_dir(const char *state, const struct nm_job *job, char *out, size_t size);

#endif /* NM_STATE_H_ */
