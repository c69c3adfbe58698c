/* What the transport says, on stderr, from the level that UCX_LOG_LEVEL names. */
#ifndef IVU_LOG_H
#define IVU_LOG_H

#include <stdbool.h>

/* As UCX's. Without UCX_LOG_LEVEL warnings are shown. */
enum ivu_log_level { IVU_LOG_FATAL, IVU_LOG_ERROR, IVU_LOG_WARN, IVU_LOG_DIAG, IVU_LOG_INFO, IVU_LOG_DEBUG };

bool ivu_log_enabled(enum ivu_log_level level);
/* One line; the format ends without a line feed. */
void ivu_log(enum ivu_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * As ivu_log() at IVU_LOG_INFO; and if NEARMETAL_UCX_REPORT is set, as `nearmetal run -v` does, whatever UCX_LOG_LEVEL
 * is. Of a job's ranks the first one says it then.
 */
void ivu_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Is it set, and is this process the first rank, or none? */
bool ivu_report_wanted(void);

#endif /* IVU_LOG_H */
