/* What a transport shows to UCX: its component, and lists of functions whose places differ between the versions. */
#ifndef IVU_OPS_H
#define IVU_OPS_H

#include "uct.h"

/* A function as UCX's lists have it: each of them has arguments of its own. */
#define IVU_FN(function) ((void *) (uintptr_t) (function))

/*
 * A component with one memory domain, and one transport with one device. ivu_transport_fill() sets what is the same for all;
 * then the owner's functions are put there, and ivu_transport_show() is called.
 */
struct ivu_transport {
	struct ivu_component component; /* first: UCX has its address, and a memory domain names it */
	struct ivu_tl tl;
	const char *device;
	const char *md_name, *md_prefix, *tl_name,
		*tl_prefix; /* what UCX calls their parameters, and begins these with */
	/* Writes the key of memory to buffer, for peers. */
	void (*pack)(const void *memh, void *buffer);
	/* Reads a key that a peer has packed. Returns IVU_OK, or an error of UCX's. */
	ivu_status (*unpack)(const void *buffer, uintptr_t *rkey);
	void *rkey_compare; /* only UCX from 1.16 on calls this one */
	void *is_connected; /* and this one */
	void *md_ops[IVU_MD_OPS_MAX];
	void *internal_ops[IVU_INTERNAL_OPS_MAX];
};

/* How an interface of each transport begins. */
struct ivu_iface_base {
	struct ivu_base_iface base; /* first, as UCX has it */
	int estimated;		    /* the operation that UCX asks about, or IVU_OPERATION_NONE */
};

/* Fills in its component and its memory domain's functions: those that are not set later are unsupported. */
void ivu_transport_fill(struct ivu_transport *t);
/* Shows it to the UCX of this process. Once. */
void ivu_transport_show(struct ivu_transport *t);

/* The transport whose memory domain that is. */
struct ivu_transport *ivu_transport_of(const struct ivu_md *md);

/* Fills in an interface's functions: all are there, and unsupported. */
void ivu_iface_ops_fill(struct ivu_iface_ops *ops);
/*
 * Makes an interface of that many bytes, which begins with a struct ivu_iface_base; the rest of it is zeros. Its
 * iface_close() has class_cleanup() clean it up, and frees it. Returns IVU_OK, or an error of UCX's; then there is none.
 */
ivu_status ivu_iface_new(size_t bytes, const struct ivu_iface_ops *ops, struct ivu_md *md, void *worker,
			 const void *params, const void *config, void **iface);

/* Functions of those lists: one that does not do it, and one that has nothing to do. */
ivu_status ivu_unsupported(void);
ivu_status ivu_nothing(void);

#endif /* IVU_OPS_H */
