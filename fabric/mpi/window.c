/*
 * The windows of this process.
 *
 * MPI_Win_allocate uses the region: it creates a window over memory of the region if every rank of the communicator has
 * room, else a window of the MPI. MPI sees MPI_Win_create; the program does not see a difference.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "window.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ivm_window *windows;

static ivm_handle handle_at(const void *win)
{
	ivm_handle h = 0;

	memcpy(&h, win, ivm_abi()->handle_bytes); /* little-endian */
	return h;
}

/* Returns the window with this handle, or NULL. take: removes it from the list. */
static struct ivm_window *find(ivm_handle handle, bool take)
{
	struct ivm_window **at, *w;

	pthread_mutex_lock(&lock);
	for (at = &windows; (w = *at) && w->handle != handle; at = &w->next)
		;
	if (w && take)
		*at = w->next;
	pthread_mutex_unlock(&lock);
	return w;
}

struct ivm_window *ivm_window(ivm_handle win)
{
	return ivm_abi()->known ? find(handle_at(&win), false) : NULL;
}

/* Adds a window that was created over comm. */
static void keep(struct ivm_window *w, const void *win, ivm_handle comm)
{
	w->handle = handle_at(win);
	w->posts = ivm_posts_open(comm, &w->comm);
	pthread_mutex_lock(&lock);
	w->next = windows;
	windows = w;
	pthread_mutex_unlock(&lock);
}

/* Returns true if all ranks of comm pass true. A failed call counts as false: MPI has reported the error. */
static bool all(bool yes, ivm_handle comm)
{
	int (*allreduce)(const void *, void *, int, ivm_handle, ivm_handle, ivm_handle);
	int mine = yes, least = 0;

	*(void **) &allreduce = ivm_next("PMPI_Allreduce");
	return allreduce && !allreduce(&mine, &least, 1, ivm_abi()->type_int, ivm_abi()->op_min, comm) && least;
}

/* disp_unit is an int or, in the calls that end in _c, an MPI_Aint. */
typedef int create(void *base, ivm_aint size, ivm_aint disp_unit, ivm_handle info, ivm_handle comm, void *win);
typedef int allocate(ivm_aint size, ivm_aint disp_unit, ivm_handle info, ivm_handle comm, void *baseptr, void *win);

typedef int create_dynamic(ivm_handle info, ivm_handle comm, void *win);

/* Records a window that the MPI created, if this library sends its posts. Returns ret. */
static int made(int ret, ivm_handle comm, const void *win)
{
	struct ivm_window *w;

	if (ret || !ivm_abi()->counts_posts)
		return ret;
	w = calloc(1, sizeof(*w));
	if (w)
		keep(w, win, comm);
	return ret;
}

static int window(const char *name, const char *by, ivm_aint size, ivm_aint disp_unit, ivm_handle info, ivm_handle comm,
		  void *baseptr, void *win)
{
	allocate *next = (allocate *) ivm_next(name);
	create *make = (create *) ivm_next(by);
	struct ivm_window *w = NULL;
	void *memory = NULL;
	int ret;

	if (!next)
		return -1;
	if (!make || !ivm_abi()->known)
		return next(size, disp_unit, info, comm, baseptr, win);
	w = calloc(1, sizeof(*w));
	memory = ivm_alloc(size);
	if (!all(w && (memory || !size), comm) || !w) {
		ivm_free(memory);
		free(w);
		return made(next(size, disp_unit, info, comm, baseptr, win), comm, win);
	}
	ret = make(memory, size, disp_unit, info, comm, win);
	if (ret) {
		ivm_free(memory);
		free(w);
		return ret;
	}
	w->region = true;
	w->memory = memory;
	keep(w, win, comm);
	*(void **) baseptr = memory;
	return ret;
}

typedef int win_free(void *win);
typedef int get_attr(ivm_handle win, int key, void *value, int *flag);

static int end(const char *name, void *win)
{
	win_free *next = (win_free *) ivm_next(name);
	struct ivm_window *w;
	int ret;

	if (!next)
		return -1;
	/* The handle is invalid after the call; nobody else can get the same one before it. */
	w = ivm_abi()->known ? find(handle_at(win), true) : NULL;
	ret = next(win);
	if (w) {
		if (w->posts)
			ivm_posts_close(&w->comm);
		ivm_free(w->memory);
		free(w);
	}
	return ret;
}

IVM_EXPORT allocate MPI_Win_allocate, PMPI_Win_allocate, MPI_Win_allocate_c, PMPI_Win_allocate_c;
IVM_EXPORT allocate MPI_Win_allocate_shared, PMPI_Win_allocate_shared;
IVM_EXPORT allocate MPI_Win_allocate_shared_c, PMPI_Win_allocate_shared_c;
IVM_EXPORT create MPI_Win_create, PMPI_Win_create, MPI_Win_create_c, PMPI_Win_create_c;
IVM_EXPORT create_dynamic MPI_Win_create_dynamic, PMPI_Win_create_dynamic;
IVM_EXPORT win_free MPI_Win_free, PMPI_Win_free;
IVM_EXPORT get_attr MPI_Win_get_attr;

#define ALLOCATE(prefix, suffix) \
	int prefix##MPI_Win_allocate##suffix(ivm_aint size, ivm_aint disp_unit, ivm_handle info, ivm_handle comm, \
					     void *baseptr, void *win) \
	{ \
		return window(#prefix "MPI_Win_allocate" #suffix, "PMPI_Win_create" #suffix, size, disp_unit, info, \
			      comm, baseptr, win); \
	}

ALLOCATE(, )
ALLOCATE(P, )
ALLOCATE(, _c)
ALLOCATE(P, _c)

#define SHARED(prefix, suffix) \
	int prefix##MPI_Win_allocate_shared##suffix(ivm_aint size, ivm_aint disp_unit, ivm_handle info, \
						    ivm_handle comm, void *baseptr, void *win) \
	{ \
		allocate *next = (allocate *) ivm_next(#prefix "MPI_Win_allocate_shared" #suffix); \
\
		return next ? made(next(size, disp_unit, info, comm, baseptr, win), comm, win) : -1; \
	}

SHARED(, )
SHARED(P, )
SHARED(, _c)
SHARED(P, _c)

#define CREATE(prefix, suffix) \
	int prefix##MPI_Win_create##suffix(void *base, ivm_aint size, ivm_aint disp_unit, ivm_handle info, \
					   ivm_handle comm, void *win) \
	{ \
		create *next = (create *) ivm_next(#prefix "MPI_Win_create" #suffix); \
\
		return next ? made(next(base, size, disp_unit, info, comm, win), comm, win) : -1; \
	}

CREATE(, )
CREATE(P, )
CREATE(, _c)
CREATE(P, _c)

#define DYNAMIC(prefix) \
	int prefix##MPI_Win_create_dynamic(ivm_handle info, ivm_handle comm, void *win) \
	{ \
		create_dynamic *next = (create_dynamic *) ivm_next(#prefix "MPI_Win_create_dynamic"); \
\
		return next ? made(next(info, comm, win), comm, win) : -1; \
	}

DYNAMIC()
DYNAMIC(P)

int MPI_Win_free(void *win)
{
	return end("MPI_Win_free", win);
}

int PMPI_Win_free(void *win)
{
	return end("PMPI_Win_free", win);
}

int MPI_Win_get_attr(ivm_handle win, int key, void *value, int *flag)
{
	get_attr *next = (get_attr *) ivm_next("MPI_Win_get_attr");
	const struct ivm_window *w = ivm_window(win);
	static int flavor;

	if (w && w->region && key == ivm_abi()->key_flavor) {
		flavor = ivm_abi()->flavor_allocate;
		*(int **) value = &flavor;
		*flag = 1;
		return IVM_SUCCESS;
	}
	return next ? next(win, key, value, flag) : -1;
}
