/* Reading the options of a program. */
#ifndef NM_OPTIONS_H
#define NM_OPTIONS_H

#include <getopt.h>

/*
 * Returns the next option: its value in list, which has --help as 'h'. -1: there are no more. *status is then -1 to
 * continue, else the status to exit with: 0 if --help was printed, 2 if an error was printed. In an MPI program only
 * rank 0 prints.
 */
int next_option(int argc, char **argv, const char *letters, const struct option *list, const char *help, int *status);

#endif
