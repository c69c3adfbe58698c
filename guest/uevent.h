/* Waits for what the kernel makes. */
#ifndef NM_UEVENT_H
#define NM_UEVENT_H

#include <stdbool.h>

/* Asks there(what) now and after each uevent, until it says true or the time is over. */
bool uevent_wait(bool (*there)(void *what), void *what, int timeout_ms);

#endif
