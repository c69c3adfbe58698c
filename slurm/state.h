/*
 * What root keeps of a job on a host, between the prolog and the epilog:
 *
 *   STATE/JOB.NODE/request   what the job wants, see struct nm_job   (root, 0600)
 *   STATE/JOB.NODE/result    how its VMs came up                     (root, 0600)
 *   STATE/JOB.NODE/devices   PCI addresses of the VFs that it has, a line each (root, 0600)
 *   STATE/JOB.NODE/region    what the job has of the GRES that counts regions, NAME:BYTES; missing
 *                            where the site does not count them     (root, 0600)
 *   STATE/JOB.NODE/hosts     its secret, and behind it its nodes, NAME=ADDR, with blanks
 *                            between; missing on a job of one node  (root, 0600)
 *   STATE/JOB.NODE/extern    process id of the extern step's own process, and when it started
 *                            (/proc/PID/stat, field 22)              (root, 0600)
 *   STATE/JOB.NODE/conf      path of the slurm.conf whose job it is         (root, 0600)
 *   STATE/JOB.NODE/run/      the job's clusters ($NEARMETAL_RUNTIME_DIR; the user, 0700): run.h
 *
 * and after the epilog, where a cgroup of the job could not be removed, until a sweep can:
 *
 *   STATE/cgroups-JOB.NODE   the number of its user                  (root, 0600)
 */
#ifndef NM_STATE_H_
#define NM_STATE_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "request.h"

/* How the names of files begin that say whose cgroups stay. */
#define NM_LEFT "cgroups-"

/* The most bytes of what is kept, with the zero behind it. */
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
	char dir[1024];		      /* working directory of the job: text of the user's */
};

/* The name of this host in Slurm, of the environment. Returns 0, or -1 if it has none that is one. */
int nm_state_node(char node[128]);

/* Make the directory of a job anew, with its request. Returns 0, or -1 with errno. */
int nm_state_create(const char *state, const struct nm_job *job);

/* Read the request of job on this host. Returns 1, 0 if there is none, or -1 with errno. */
int nm_state_read(const char *state, uint32_t id, struct nm_job *job);

/* Files of a job that are text as it is. A result's first line is "ready CLUSTER", "failed user" or "failed host". */
enum nm_state_file { NM_FILE_RESULT, NM_FILE_DEVICES, NM_FILE_REGION, NM_FILE_HOSTS, NM_FILE_EXTERN };

/* Write such a file anew. Returns 0, or -1 with errno. */
int nm_state_write_file(const char *state, const struct nm_job *job, enum nm_state_file what, const char *text);

/* Read it to text, which has size bytes: NM_RESULT_MAX and so on. Returns its length, 0 if there is none, or -1 with errno. */
ssize_t nm_state_read_file(const char *state, const struct nm_job *job, enum nm_state_file what, char *text,
			   size_t size);

/* Write and read the extern step's process: its number, and when it started. Reading returns 1 where it is known, or 0. */
int nm_state_write_extern(const char *state, const struct nm_job *job, pid_t pid, unsigned long long start);
int nm_state_read_extern(const char *state, const struct nm_job *job, pid_t *pid, unsigned long long *start);

/* Write down that a cgroup of the job stays. Returns 0, or -1 with errno. */
int nm_state_write_left(const char *state, const struct nm_job *job);

/* Remove what is kept of a job. Returns 0 also where nothing is, else -1 with errno. */
int nm_state_remove(const char *state, uint32_t id, const char *node);

/* Mount a job's run where this process does not see it (run.h). Returns 0, or -1 with errno. */
int nm_state_run_here(const char *state, const struct nm_job *job);

/* $NEARMETAL_RUNTIME_DIR of a job. Returns 0, or -1 if it is too long. */
int nm_state_run_dir(const char *state, const struct nm_job *job, char *out, size_t size);

#endif /* NM_STATE_H_ */
