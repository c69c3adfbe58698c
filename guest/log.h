/* Messages for the console, and the end of an agent that cannot continue. */
#ifndef NM_LOG_H
#define NM_LOG_H

/* Writes one line, `nearmetal-agent: …`, to standard error (the console). */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Called by die after its line: reports to the host and powers off, or exits. */
extern void (*on_die)(const char *text);

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
