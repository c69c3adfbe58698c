/* File copies, run in a child with the client's identity. */
#ifndef NM_FILES_H
#define NM_FILES_H

/* Creates at path the files of the records on standard input; returns the exit code. */
int files_receive(const char *path);
/* Writes the records of path to standard output; returns the exit code. */
int files_send(const char *path);

#endif
