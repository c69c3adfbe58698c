/* Chooses the messages of medium size that a neighbour reads directly. */
#ifndef IVS_CMA_POLICY_H
#define IVS_CMA_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/adapt.h"

/*
 * Returns true if a message of len bytes, less than IVS_CMA_POLICY_SURE, is to be read directly. copies: its cycles
 * through bounce buffers, 0: not known. alone: no other message is in flight. Such messages now and then get the other
 * answer, to measure it.
 */
bool ivs_cma_policy_better(struct ivs_cma_policy *policy, size_t len, uint64_t copies, bool alone);

/* Adds a measurement: a message that was alone needed this many cycles to be read. */
void ivs_cma_policy_took(struct ivs_cma_policy *policy, size_t len, uint64_t cycles);

#endif /* IVS_CMA_POLICY_H */
