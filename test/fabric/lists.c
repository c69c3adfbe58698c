#include "lists.h"

const struct test *const test_lists[] = {
	test_objects, test_messages, test_memory, test_faults, test_stress,
	test_chaos, test_chunks, test_joint, test_limits, test_waiting,
	test_alone, NULL
};
