/* The lists of tests, one a file. */
#ifndef LISTS_H
#define LISTS_H

#include "harness.h"

extern const struct test test_messages[], test_memory[], test_objects[], test_faults[],
	test_stress[], test_chaos[], test_chunks[], test_joint[], test_limits[], test_waiting[], test_alone[];

#endif
