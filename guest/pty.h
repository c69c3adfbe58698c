/* Terminals. */
#ifndef NM_PTY_H
#define NM_PTY_H

#include <stdbool.h>
#include <sys/types.h>

/* Opens a terminal pair, the program's side owned by uid; false with errno. */
bool pty_open(int *master, int *slave, uid_t uid);
/* Reads "ROWS COLUMNS" and sets the size; the foreground group gets SIGWINCH. */
bool pty_resize(int master, const char *size);
/* Makes the terminal the controlling one of this new session, in a child. */
bool pty_control(int slave);
/* Signals the terminal's foreground group; false if there is none. */
bool pty_signal(int master, int sig);

#endif
