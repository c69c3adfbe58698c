/*
 * A request: a job's wishes for its VMs, as one line of text. srun, sbatch and salloc store it in the job
 * (SPANK_NEARMETAL_REQUEST in the prolog), where any user could write any text. Therefore it is parsed with the same
 * care as options.
 *
 * "1 KEY=VALUE KEY=VALUE ...": 1 is the version of the format; the keys are in the order of enum nm_key, and vm, if
 * present, is 1. Bytes of a value other than letters, digits and "-_./:,+@" are encoded as %XX. Each request has
 * exactly this one form, and any other is rejected: root, the user's programs and internal/slurm/node/request.go read
 * the same text, and testdata/requests.txt has test cases for both parsers.
 */
#ifndef NM_REQUEST_H_
#define NM_REQUEST_H_

#include "values.h"

#define NM_REQUEST_MAX 4096

/* The name of the job's variable, without the SPANK_ prefix that Slurm adds. */
#define NM_REQUEST_NAME "NEARMETAL_REQUEST"

/*
 * The name of the variable with the secret that joins the job's nodes: hexadecimal digits, generated where the job
 * was submitted. Only the prolog, the epilog and the job's own supervisors see it.
 */
#define NM_SECRET_NAME "NEARMETAL_SECRET"
#define NM_SECRET_LEN  64

/* Write the values that are set to out. Returns 0, or -1 if they are too long. */
int nm_request_write(const struct nm_values *v, char out[NM_REQUEST_MAX]);

/* Parse a request, for which nm_request_write writes the same text. Returns 0, or -1 and the reason. */
int nm_request_read(const char *text, struct nm_values *v, char message[NM_MESSAGE_MAX]);

#endif /* NM_REQUEST_H_ */
