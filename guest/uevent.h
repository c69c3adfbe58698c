/* Waits for objects that the kernel creates. */
#ifndef NM_UEVENT_H
#define NM_UEVENT_H

#include <stdbool.h>

/* Calls there(what) now and after each uevent, until it returns true or the time is over. */
bool uevent_wait(bool (*there)(void *what), void *what, int timeout_ms);

#endif
