/* The transport's messages on stderr, from the level in UCX_LOG_LEVEL. */
#ifndef IVU_LOG_H
#define IVU_LOG_H

#include <stdbool.h>

/* UCX's levels. Without UCX_LOG_LEVEL warnings are printed. */
enum ivu_log_level { IVU_LOG_FATAL, IVU_LOG_ERROR, IVU_LOG_WARN, IVU_LOG_DIAG, IVU_LOG_INFO, IVU_LOG_DEBUG };

bool ivu_log_enabled(enum ivu_log_level level);
/* Prints one line; the format has no final newline. */
void ivu_log(enum ivu_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * As ivu_log() at IVU_LOG_INFO; if NEARMETAL_UCX_REPORT is set, as by `nearmetal run -v`, regardless of
 * UCX_LOG_LEVEL. Of a job's ranks only the first one then prints it.
 */
void ivu_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns whether it is set, and this process is the first rank, or not a rank. */
bool ivu_report_wanted(void);

#endif /* IVU_LOG_H */
