/* What root does on a host for a job and its VMs. */
#ifndef NM_NODE_H_
#define NM_NODE_H_

#include "settings.h"
#include "state.h"

/* The primary group of a user. Returns 0, or -1. */
int nm_node_group(uid_t uid, gid_t *gid);

/* The most bytes of what Slurm says of a job's GRES on a host. */
#define NM_GRES_MAX 8192

/*
 * Ask slurmctld for the job's GRES on this host: "vf:igb:1(IDX:0),region(CNT:536870912)", "" for
 * none. Returns 0, or -1 and a message for the user.
 */
int nm_node_gres(const struct nm_job *job, char gres[NM_GRES_MAX], char message[NM_MESSAGE_MAX]);

/*
 * Write "NAME=ADDR NAME=ADDR ..." of a list of nodes to out, in their order; "" for a single one.
 * Returns 0, or -1 and why.
 */
int nm_node_hosts(const char *nodes, char *out, size_t size, char message[NM_MESSAGE_MAX]);

/* Bytes that a GRES text, "vf:cx:1(IDX:0),region(CNT:536870912)", says of a GRES. */
uint64_t nm_node_gres_count(const char *gres, const char *name);

/* When a process started, as /proc/PID/stat has it; 0 if it is not there. */
unsigned long long nm_node_started(pid_t pid);

/* Whether a process is the child of a slurmstepd: an orphan's parent is another. */
bool nm_node_of_slurmstepd(pid_t pid);

/* A child of this process; -1 if it has none. */
pid_t nm_node_child(void);

/*
 * End what runs of the job's VMs: its supervisors get SIGTERM, in order to end their VMs, and all
 * that is left after some seconds SIGKILL. A process is the job's if it belongs to its user and
 * its environment says so (NEARMETAL_SLURM_JOB=STATE/JOB.NODE: another
 * Slurm on the same host has a state of its own). The extern step's own process, which stays where its
 * slurmstepd was killed, ends with them, and the job's cgroups go then. Returns whether one of those stays.
 */
bool nm_node_end_job(const struct nm_settings *s, const struct nm_job *job);

/* Drain this host: the reason is for its administrator. */
void nm_node_drain(const struct nm_job *job, const char *reason);

#endif /* NM_NODE_H_ */
