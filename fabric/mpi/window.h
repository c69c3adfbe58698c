/* The windows that this library must know again. */
#ifndef IVM_WINDOW_H
#define IVM_WINDOW_H

#include "abi.h"

struct ivm_window {
	struct ivm_window *next;
	ivm_handle handle;
	bool region;	 /* memory is ours */
	void *memory;	 /* NULL: of no bytes */
	bool posts;	 /* comm is there */
	ivm_handle comm; /* for messages that say that a rank has posted */
};

/* The window, or NULL: it is not of those. */
struct ivm_window *ivm_window(ivm_handle win);

/*
 * For a window over comm, by all of its ranks: returns true and sets *posts if this
 * library sends the posts. The handle is for ivm_posts_close(), by all of them.
 */
bool ivm_posts_open(ivm_handle comm, ivm_handle *posts);
void ivm_posts_close(ivm_handle *posts);

#endif /* IVM_WINDOW_H */
