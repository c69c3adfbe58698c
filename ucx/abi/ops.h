/*
 * The part of a transport that UCX sees: its component, and lists of functions whose order differs between the
 * versions.
 */
#ifndef IVU_OPS_H
#define IVU_OPS_H

#include "uct.h"

/* A function in the form of UCX's lists: each of them has different arguments. */
#define IVU_FN(function) ((void *) (uintptr_t) (function))

/*
 * A component with one memory domain, and one transport with one device. ivu_transport_fill() sets the common values;
 * then the owner sets its functions, and calls ivu_transport_show().
 */
struct ivu_transport {
	struct ivu_component component; /* first: UCX has its address, and a memory domain refers to it */
	struct ivu_tl tl;
	const char *device;
	const char *md_name, *md_prefix, *tl_name, *tl_prefix; /* UCX's name for their parameters, and their prefix */
	/* Writes the key of memory to buffer, for peers. */
	void (*pack)(const void *memh, void *buffer);
	/* Reads a key that a peer has packed. Returns IVU_OK, or an error of UCX. */
	ivu_status (*unpack)(const void *buffer, uintptr_t *rkey);
	void *rkey_compare; /* called only by UCX from 1.16 on */
	void *is_connected; /* likewise */
	void *md_ops[IVU_MD_OPS_MAX];
	void *internal_ops[IVU_INTERNAL_OPS_MAX];
};

/* The first part of an interface of each transport. */
struct ivu_iface_base {
	struct ivu_base_iface base; /* first, as in UCX */
	int estimated;		    /* the operation that UCX queries, or IVU_OPERATION_NONE */
};

/* Fills in its component and its memory domain's functions: those that are not set later are unsupported. */
void ivu_transport_fill(struct ivu_transport *t);
/* Registers it with the UCX of this process. Called once. */
void ivu_transport_show(struct ivu_transport *t);

/* Returns the transport that a memory domain belongs to. */
struct ivu_transport *ivu_transport_of(const struct ivu_md *md);

/* Fills in all functions of an interface as unsupported. */
void ivu_iface_ops_fill(struct ivu_iface_ops *ops);
/*
 * Makes an interface of that many bytes, which begins with a struct ivu_iface_base; the rest of it is zeroed. Its
 * iface_close() has class_cleanup() clean it up, and frees it. Returns IVU_OK, or an error of UCX, without an
 * interface.
 */
ivu_status ivu_iface_new(size_t bytes, const struct ivu_iface_ops *ops, struct ivu_md *md, void *worker,
			 const void *params, const void *config, void **iface);

/* Functions for those lists: one that is unsupported, and one that does nothing. */
ivu_status ivu_unsupported(void);
ivu_status ivu_nothing(void);

#endif /* IVU_OPS_H */
