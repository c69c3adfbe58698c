/* File copies, run in a child with the client's identity. */
#ifndef NM_FILES_H
#define NM_FILES_H

/* Makes at path what the records on standard input say; the exit code. */
int files_receive(const char *path);
/* Writes the records of path to standard output; the exit code. */
int files_send(const char *path);

#endif
