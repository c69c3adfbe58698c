/*
 * The interface between UCX, from 1.13 on, and a transport: the structures that its libraries and a transport share.
 * UCX installs no headers of these, and each minor version has its own. Therefore they are described here, with this
 * project's names, for all versions: common parts as structures, and differences as numbers in abi.c, by the version
 * of the UCX that a process has. Nothing of UCX is needed to build this. abi_check.c compares all of it with the
 * source of a UCX (scripts/ucx-abi.sh).
 */
#ifndef IVU_ABI_H
#define IVU_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Known minor versions of UCX 1. */
#define IVU_MINOR_FIRST 13
#define IVU_MINOR_LAST	22
/* Up to this version a rendezvous reads if it can, even if another transport would be faster. */
#define IVU_MINOR_READS 15

/* The last version before, and the first one after those that do not use memory of the region (window.c). */
#define IVU_MINOR_WINDOW       15
#define IVU_MINOR_WINDOW_AGAIN 19

/* ucs_status_t is one byte. */
typedef int8_t ivu_status;

#define IVU_OK			 0
#define IVU_INPROGRESS		 1
#define IVU_ERR_NO_RESOURCE	 (-2)
#define IVU_ERR_IO_ERROR	 (-3)
#define IVU_ERR_NO_MEMORY	 (-4)
#define IVU_ERR_INVALID_PARAM	 (-5)
#define IVU_ERR_UNREACHABLE	 (-6)
#define IVU_ERR_NO_DEVICE	 (-14)
#define IVU_ERR_BUSY		 (-15)
#define IVU_ERR_CANCELED	 (-16)
#define IVU_ERR_UNSUPPORTED	 (-22)
#define IVU_ERR_CONNECTION_RESET (-25)
#define IVU_ERR_ENDPOINT_TIMEOUT (-80)

#define IVU_COMPONENT_NAME 16 /* bytes of names */
#define IVU_DEVICE_NAME	   32
#define IVU_TL_NAME	   10
#define IVU_AM_IDS	   32
#define IVU_PENDING_PRIV   40 /* bytes of a pending request that belong to the transport */

struct ivu_list {
	struct ivu_list *next, *prev;
};

/* A table of parameters in UCX's list. flags: from 1.15 on. */
struct ivu_config_entry {
	const char *name, *prefix;
	void *table;
	size_t size;
	struct ivu_list list;
	uint64_t flags;
};

#define IVU_CONFIG_ENTRY_1_13 48 /* its size in bytes before 1.15 */

/* The part of a component that is the same in all versions; the offsets of the rest are in abi.c. */
struct ivu_component {
	char name[IVU_COMPONENT_NAME];
	void *query_md_resources;
	void *md_open;
	void *cm_open;
	void *rkey_unpack;
	void *rkey_ptr;
	void *rkey_release;
	uint8_t rest[232 - 64];
};

struct ivu_tl {
	char name[IVU_TL_NAME];
	void *query_devices;
	void *iface_open;
	struct ivu_config_entry config; /* shorter before 1.15, as is everything after it */
	struct ivu_list list;
};

struct ivu_tl_device {
	char name[IVU_DEVICE_NAME];
	uint32_t type;
	uint8_t sys_device;
};

#define IVU_DEVICE_NET	       0
#define IVU_SYS_DEVICE_UNKNOWN 0xff

struct ivu_md {
	void **ops;
	void *component;
};

#define IVU_MD_OPS_MAX 12

/* Indices of a memory domain's functions in its list (uct_md_ops_t) that are the same in all versions. */
enum { IVU_MD_CLOSE, IVU_MD_QUERY, IVU_MD_MEM_ALLOC, IVU_MD_MEM_FREE, IVU_MD_MEM_REG = 5, IVU_MD_MEM_DEREG };

#define IVU_INTERNAL_OPS_MAX 10

#define IVU_MD_FLAG_ALLOC     (1U << 0)
#define IVU_MD_FLAG_REG	      (1U << 1)
#define IVU_MD_FLAG_NEED_RKEY (1U << 3)
#define IVU_MEMORY_HOST	      0
#define IVU_MEM_FIXED	      (1U << 1) /* allocate at this address */

/* Attributes of a memory domain (uct_md_attr_v2_t): offsets in abi.c. */
struct ivu_linear {
	double c, m;
};

struct ivu_mem_dereg {
	uint64_t field_mask;
	unsigned int flags;
	void *memh;
	struct ivu_completion *comp;
};

#define IVU_MEM_DEREG_MEMH	 1U
#define IVU_MEM_DEREG_FLAGS	 2U
#define IVU_MEM_DEREG_INVALIDATE 1U

struct ivu_completion {
	void (*func)(struct ivu_completion *self);
	int count;
	ivu_status status;
};

struct ivu_iov {
	void *buffer;
	size_t length;
	void *memh;
	size_t stride;
	unsigned int count;
};

struct ivu_pending {
	ivu_status (*func)(struct ivu_pending *self);
	char priv[IVU_PENDING_PRIV];
};

struct ivu_ep_params {
	uint64_t field_mask;
	void *iface;
	void *user_data;
	const void *dev_addr;
	const void *iface_addr;
};

struct ivu_reachable_params {
	uint64_t field_mask;
	const void *device_addr;
	const void *iface_addr;
};

#define IVU_REACHABLE_DEVICE_ADDR 1U
#define IVU_REACHABLE_IFACE_ADDR  2U

/* The beginning of uct_perf_attr_t. */
struct ivu_perf {
	uint64_t field_mask;
	int operation;
};

#define IVU_PERF_OPERATION	1U
#define IVU_OPERATION_NONE	-1 /* not a value of UCX */
#define IVU_OPERATION_AM_SHORT	0
#define IVU_OPERATION_AM_ZCOPY	2
#define IVU_OPERATION_PUT_SHORT 3
#define IVU_OPERATION_PUT_BCOPY 4
#define IVU_OPERATION_PUT_ZCOPY 5
#define IVU_OPERATION_GET_BCOPY 7
#define IVU_OPERATION_GET_ZCOPY 8

struct ivu_ep;
struct ivu_iface;

typedef ivu_status (*ivu_am_callback)(void *arg, void *data, size_t length, unsigned int flags);
typedef size_t (*ivu_pack)(void *dest, void *arg);
typedef void (*ivu_unpack)(void *arg, const void *data, size_t length);
typedef void (*ivu_purge)(struct ivu_pending *self, void *arg);

/* uct_iface_ops_t */
struct ivu_iface_ops {
	void *put_short, *put_bcopy;
	ivu_status (*put_zcopy)(struct ivu_ep *ep, const struct ivu_iov *iov, size_t count, uint64_t remote,
				uintptr_t rkey, struct ivu_completion *comp);
	void *get_short, *get_bcopy, *get_zcopy;
	ivu_status (*am_short)(struct ivu_ep *ep, uint8_t id, uint64_t header, const void *payload,
			       unsigned int length);
	ivu_status (*am_short_iov)(struct ivu_ep *ep, uint8_t id, const struct ivu_iov *iov, size_t count);
	ssize_t (*am_bcopy)(struct ivu_ep *ep, uint8_t id, ivu_pack pack, void *arg, unsigned int flags);
	ivu_status (*am_zcopy)(struct ivu_ep *ep, uint8_t id, const void *header, unsigned int header_length,
			       const struct ivu_iov *iov, size_t count, unsigned int flags,
			       struct ivu_completion *comp);
	ivu_status (*cswap64)(struct ivu_ep *ep, uint64_t compare, uint64_t swap, uint64_t remote, uintptr_t rkey,
			      uint64_t *before, struct ivu_completion *comp);
	ivu_status (*cswap32)(struct ivu_ep *ep, uint32_t compare, uint32_t swap, uint64_t remote, uintptr_t rkey,
			      uint32_t *before, struct ivu_completion *comp);
	ivu_status (*post32)(struct ivu_ep *ep, unsigned int op, uint32_t value, uint64_t remote, uintptr_t rkey);
	ivu_status (*post64)(struct ivu_ep *ep, unsigned int op, uint64_t value, uint64_t remote, uintptr_t rkey);
	ivu_status (*fetch32)(struct ivu_ep *ep, unsigned int op, uint32_t value, uint32_t *before, uint64_t remote,
			      uintptr_t rkey, struct ivu_completion *comp);
	ivu_status (*fetch64)(struct ivu_ep *ep, unsigned int op, uint64_t value, uint64_t *before, uint64_t remote,
			      uintptr_t rkey, struct ivu_completion *comp);
	void *tag[8];
	ivu_status (*pending_add)(struct ivu_ep *ep, struct ivu_pending *req, unsigned int flags);
	void (*pending_purge)(struct ivu_ep *ep, ivu_purge purge, void *arg);
	ivu_status (*ep_flush)(struct ivu_ep *ep, unsigned int flags, struct ivu_completion *comp);
	ivu_status (*ep_fence)(struct ivu_ep *ep, unsigned int flags);
	ivu_status (*ep_check)(struct ivu_ep *ep, unsigned int flags, struct ivu_completion *comp);
	ivu_status (*ep_create)(const struct ivu_ep_params *params, struct ivu_ep **ep);
	void *ep_connect, *ep_disconnect, *cm_ep_conn_notify;
	void (*ep_destroy)(struct ivu_ep *ep);
	void *ep_get_address, *ep_connect_to_ep, *iface_accept, *iface_reject;
	ivu_status (*iface_flush)(struct ivu_iface *iface, unsigned int flags, struct ivu_completion *comp);
	ivu_status (*iface_fence)(struct ivu_iface *iface, unsigned int flags);
	void *progress_enable, *progress_disable;
	unsigned int (*iface_progress)(struct ivu_iface *iface);
	ivu_status (*event_fd_get)(struct ivu_iface *iface, int *fd);
	ivu_status (*event_arm)(struct ivu_iface *iface, unsigned int events);
	void (*iface_close)(struct ivu_iface *iface);
	ivu_status (*iface_query)(struct ivu_iface *iface, void *attr);
	ivu_status (*get_device_address)(struct ivu_iface *iface, void *addr);
	ivu_status (*get_address)(struct ivu_iface *iface, void *addr);
	int (*is_reachable)(struct ivu_iface *iface, const void *dev_addr, const void *iface_addr);
};

_Static_assert(sizeof(struct ivu_iface_ops) == 400, "50 functions");

struct ivu_am_handler {
	ivu_am_callback cb;
	void *arg;
	uint32_t flags;
};

/* uct_base_iface_t: initialized by UCX. */
struct ivu_base_iface {
	struct ivu_iface_ops ops;
	void **internal_ops;
	struct ivu_md *md;
	void *worker;
	struct ivu_am_handler am[IVU_AM_IDS];
	uint8_t rest[1280 - 1192];
};

_Static_assert(offsetof(struct ivu_base_iface, am) == 424 && sizeof(struct ivu_base_iface) == 1280, "as UCX has it");

/* uct_atomic_op_t */
enum { IVU_ATOMIC_ADD, IVU_ATOMIC_AND, IVU_ATOMIC_OR, IVU_ATOMIC_XOR, IVU_ATOMIC_SWAP, IVU_ATOMIC_CSWAP };

#define IVU_FLAG_AM_SHORT	  (1ULL << 0)
#define IVU_FLAG_AM_BCOPY	  (1ULL << 1)
#define IVU_FLAG_AM_ZCOPY	  (1ULL << 2)
#define IVU_FLAG_PENDING	  (1ULL << 3)
#define IVU_FLAG_PUT_SHORT	  (1ULL << 4)
#define IVU_FLAG_PUT_BCOPY	  (1ULL << 5)
#define IVU_FLAG_PUT_ZCOPY	  (1ULL << 6)
#define IVU_FLAG_GET_BCOPY	  (1ULL << 9)
#define IVU_FLAG_GET_ZCOPY	  (1ULL << 10)
#define IVU_FLAG_ATOMIC_CPU	  (1ULL << 30) /* atomics by the CPU's instructions */
#define IVU_FLAG_PEER_FAILURE	  (1ULL << 38)
#define IVU_FLAG_EP_CHECK	  (1ULL << 39)
#define IVU_FLAG_CONNECT_TO_IFACE (1ULL << 40)
#define IVU_FLAG_CB_SYNC	  (1ULL << 44)
#define IVU_FLAG_INTER_NODE	  (1ULL << 54) /* from 1.18 on */

#define IVU_EVENT_SEND_COMP (1ULL << 0)
#define IVU_EVENT_RECV	    (1ULL << 1)
#define IVU_EVENT_FD	    (1ULL << 3)

#define IVU_FLUSH_CANCEL  1U
#define IVU_PROGRESS_SEND 1U
#define IVU_PROGRESS_RECV 2U

struct ivu_cap_rma {
	size_t max_short, max_bcopy, min_zcopy, max_zcopy, opt_zcopy_align, align_mtu, max_iov;
};

/* Sets of operations: bit IVU_ATOMIC_ADD and so on. */
struct ivu_cap_atomic {
	uint64_t post, fetch;
};

/* uct_iface_attr_t */
struct ivu_iface_attr {
	struct ivu_cap_rma put, get;
	struct {
		size_t max_short, max_bcopy, min_zcopy, max_zcopy, opt_zcopy_align, align_mtu, max_hdr, max_iov;
	} am;
	size_t tag[11];
	struct ivu_cap_atomic atomic32, atomic64;
	uint64_t flags, event_flags;
	size_t device_addr_len, iface_addr_len, ep_addr_len, max_conn_priv;
	struct sockaddr_storage listen_sockaddr;
	double overhead;	   /* seconds */
	double dedicated, shared;  /* bandwidth, bytes/s */
	struct ivu_linear latency; /* seconds */
	uint8_t priority;
	size_t max_num_eps;
	unsigned int dev_num_paths;
};

_Static_assert(sizeof(struct ivu_iface_attr) == 536, "as UCX has it");

/* The differences between the versions. -1: the version does not have it. */
struct ivu_abi {
	/* offsets in a component, bytes */
	size_t md_config, cm_config, tl_list, list, flags, rkey_compare, md_vfs_init;
	/* offsets in a transport */
	size_t tl_entry_list;
	/* indices of further functions of a memory domain */
	int mkey_pack, mem_attach;
	/* indices of internal functions of an interface */
	int query_v2, estimate_perf, vfs_refresh, ep_query, ep_invalidate, connect_to_ep_v2, is_reachable_v2,
		is_connected, device_ep, mem_element_pack, put_sgl;
	/* offsets in the answer to a query of a memory domain */
	size_t attr_max_alloc, attr_max_reg, attr_flags, attr_reg_mem_types, attr_alloc_mem_types,
		attr_access_mem_types, attr_reg_cost, attr_component, attr_rkey_size, attr_bytes;
	size_t attr_cpus;	     /* a mask of CPUs, 128 bytes */
	size_t attr_cache_mem_types; /* types whose registration UCX caches, 0: not present */
	size_t attr_alignment;	     /* of registered memory, 0: not present */
	bool pack_has_range;	     /* mkey_pack has address and length */
	bool unpack_has_params;
	bool alloc_has_device; /* mem_alloc has a device argument */
};

/* Returns the description of UCX 1.minor in *abi. false: that version is not known. */
bool ivu_abi_of(unsigned int minor, struct ivu_abi *abi);

#endif /* IVU_ABI_H */
