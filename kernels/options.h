/* Reading the options of a program. */
#ifndef NM_OPTIONS_H
#define NM_OPTIONS_H

#include <getopt.h>

/*
 * The next option: its value in list, which has --help as 'h'. -1: there is no more to read. *status is then
 * -1 to go on; else the status to exit with: 0 when --help was printed, 2 when a line said what is wrong. In an MPI
 * program rank 0 alone prints.
 */
int next_option(int argc, char **argv, const char *letters, const struct option *list, const char *help, int *status);

#endif
