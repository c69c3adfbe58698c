/* The lists of tests, one per file. */
#ifndef LISTS_H
#define LISTS_H

#include "harness.h"

extern const struct test test_messages[], test_memory[], test_objects[], test_faults[], test_stress[], test_chaos[],
	test_bounce[], test_coop[], test_limits[], test_waiting[], test_alone[], test_files[], test_forged[],
	test_flood[], test_report[], test_hosts[], test_wire[], test_counts[], test_reused[];

#endif
