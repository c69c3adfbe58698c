/* Operations of root on a host for a job and its VMs. */
#ifndef NM_NODE_H_
#define NM_NODE_H_

#include "settings.h"
#include "state.h"

/* Read the primary group of a user. Returns 0, or -1. */
int nm_node_group(uid_t uid, gid_t *gid);

/* The maximum size of Slurm's description of a job's GRES on a host, in bytes. */
#define NM_GRES_MAX 8192

/*
 * Query slurmctld for the job's GRES on this host: "vf:igb:1(IDX:0),region(CNT:536870912)", "" for none. Returns 0,
 * or -1 and a message for the user.
 */
int nm_node_gres(const struct nm_job *job, char gres[NM_GRES_MAX], char message[NM_MESSAGE_MAX]);

/*
 * Write "NAME=ADDR NAME=ADDR ..." for a list of nodes to out, in their order; "" for a single node. Returns 0, or -1
 * and the reason.
 */
int nm_node_hosts(const char *nodes, char *out, size_t size, char message[NM_MESSAGE_MAX]);

/* The count (bytes) of a GRES in a GRES text such as "vf:cx:1(IDX:0),region(CNT:536870912)". */
uint64_t nm_node_gres_count(const char *gres, const char *name);

/* The start time of a process, as in /proc/PID/stat; 0 if there is no such process. */
unsigned long long nm_node_started(pid_t pid);

/* Whether a process is the child of a slurmstepd. An orphan has another parent. */
bool nm_node_of_slurmstepd(pid_t pid);

/* A child of this process; -1 if it has none. */
pid_t nm_node_child(void);

/*
 * End the processes of the job's VMs: the supervisors receive SIGTERM, so that they end their VMs, and all processes
 * left after some seconds are killed with SIGKILL. A process belongs to the job if its user is the job's and its
 * environment contains NEARMETAL_SLURM_JOB=STATE/JOB.NODE (another Slurm on the same host has another state
 * directory). The extern step's own process, which remains if its slurmstepd was killed, is also killed, and then the
 * job's cgroups are removed. Returns whether a cgroup remains.
 */
bool nm_node_end_job(const struct nm_settings *s, const struct nm_job *job);

/* Drain this host, with a reason for its administrator. */
void nm_node_drain(const struct nm_job *job, const char *reason);

#endif /* NM_NODE_H_ */
