/* The windows that this library has to recognize. */
#ifndef IVM_WINDOW_H
#define IVM_WINDOW_H

#include "abi.h"

struct ivm_window {
	struct ivm_window *next;
	ivm_handle handle;
	bool region;	 /* memory is from the region */
	void *memory;	 /* NULL: a window of 0 bytes */
	bool posts;	 /* comm is valid */
	ivm_handle comm; /* for messages that announce a post */
};

/* Returns the window, or NULL if the library has not recorded it. */
struct ivm_window *ivm_window(ivm_handle win);

/*
 * Prepares posts for a window over comm; all of its ranks call it. Returns true and sets *posts if this library sends
 * the posts. All ranks pass the handle to ivm_posts_close().
 */
bool ivm_posts_open(ivm_handle comm, ivm_handle *posts);
void ivm_posts_close(ivm_handle *posts);

#endif /* IVM_WINDOW_H */
