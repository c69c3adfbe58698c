/*
 * A request: what a job wants of its VMs, as one line of text. srun, sbatch and salloc write
 * it into the job (SPANK_NEARMETAL_REQUEST in the prolog), where any user could write
 * anything: it is read with the same care as options.
 *
 * "1 KEY=VALUE KEY=VALUE ...", 1 being the format, with the keys in the order of enum nm_key and vm, if it is there,
 * 1; of a value, bytes other than letters, digits and "-_./:,+@" are written %XX. Each request has this one form, and
 * another is rejected: root, the user's programs and internal/slurm/node/request.go read the same text, and
 * testdata/requests.txt has cases that both readers are tested with.
 */
#ifndef NM_REQUEST_H_
#define NM_REQUEST_H_

#include "values.h"

#define NM_REQUEST_MAX 4096

/* Name of the variable of the job, without the SPANK_ that Slurm puts before it. */
#define NM_REQUEST_NAME "NEARMETAL_REQUEST"

/*
 * Likewise that of the secret that joins the job's nodes: hexadecimal digits, drawn where the job
 * was submitted. Only the prolog and epilog see it, and the job's own supervisors.
 */
#define NM_SECRET_NAME "NEARMETAL_SECRET"
#define NM_SECRET_LEN  64

/* Write the values that are set to out. Returns 0, or -1 if they are too long. */
int nm_request_write(const struct nm_values *v, char out[NM_REQUEST_MAX]);

/* Read a request: nm_request_write writes the same text of it. Returns 0, or -1 and why. */
int nm_request_read(const char *text, struct nm_values *v, char message[NM_MESSAGE_MAX]);

#endif /* NM_REQUEST_H_ */
