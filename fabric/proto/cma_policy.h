/* Which messages of middling size a neighbour reads directly. */
#ifndef IVS_CMA_POLICY_H
#define IVS_CMA_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/adapt.h"

/*
 * Is a message of len bytes, less than IVS_CMA_POLICY_SURE, to be read directly? copies: cycles that it
 * is under way through bounce buffers, 0: not known. alone: none is on its way, and now and then
 * the answer is the other one, to see.
 */
bool ivs_cma_policy_better(struct ivs_cma_policy *policy, size_t len, uint64_t copies, bool alone);

/* Adds a message that was alone and took this many cycles to be read. */
void ivs_cma_policy_took(struct ivs_cma_policy *policy, size_t len, uint64_t cycles);

#endif /* IVS_CMA_POLICY_H */
