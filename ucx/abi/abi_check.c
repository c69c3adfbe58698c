/*
 * Compares abi.h and abi.c with the source of a UCX: scripts/ucx-abi.sh compiles this with that source's headers and
 * runs it. Prints the differences. Exits with 1 if there are any.
 */
#include <stdio.h>

#include <uct/base/uct_component.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/api/tl.h>

#include "abi.h"

#define M CHECK_MINOR

static int wrong;

static void same(const char *what, long ours, long theirs)
{
	if (ours == theirs)
		return;
	printf("UCX 1.%d: %s is %ld, here %ld\n", M, what, theirs, ours);
	wrong = 1;
}

#define SAME(ours, theirs) same(#theirs, (long) (ours), (long) (theirs))
#define FIELD(our, ofield, their, tfield) \
	do { \
		same(#their "." #tfield, offsetof(our, ofield), offsetof(their, tfield)); \
		same("bytes of " #their "." #tfield, sizeof(((our *) 0)->ofield), sizeof(((their *) 0)->tfield)); \
	} while (0)
#define OP(field, name)	   FIELD(struct ivu_iface_ops, field, uct_iface_ops_t, name)
#define INDEX(type, field) ((long) (offsetof(type, field) / sizeof(void *)))

static void interface(void)
{
	OP(put_short, ep_put_short);
	OP(put_bcopy, ep_put_bcopy);
	OP(put_zcopy, ep_put_zcopy);
	OP(get_bcopy, ep_get_bcopy);
	OP(cswap64, ep_atomic_cswap64);
	OP(cswap32, ep_atomic_cswap32);
	OP(post32, ep_atomic32_post);
	OP(post64, ep_atomic64_post);
	OP(fetch32, ep_atomic32_fetch);
	OP(fetch64, ep_atomic64_fetch);
	OP(am_short, ep_am_short);
	OP(am_short_iov, ep_am_short_iov);
	OP(am_bcopy, ep_am_bcopy);
	OP(am_zcopy, ep_am_zcopy);
	OP(pending_add, ep_pending_add);
	OP(pending_purge, ep_pending_purge);
	OP(ep_flush, ep_flush);
	OP(ep_fence, ep_fence);
	OP(ep_check, ep_check);
	OP(ep_create, ep_create);
	OP(ep_destroy, ep_destroy);
	OP(iface_flush, iface_flush);
	OP(iface_fence, iface_fence);
	OP(progress_enable, iface_progress_enable);
	OP(progress_disable, iface_progress_disable);
	OP(iface_progress, iface_progress);
	OP(event_fd_get, iface_event_fd_get);
	OP(event_arm, iface_event_arm);
	OP(iface_close, iface_close);
	OP(iface_query, iface_query);
	OP(get_device_address, iface_get_device_address);
	OP(get_address, iface_get_address);
	OP(is_reachable, iface_is_reachable);
	SAME(sizeof(struct ivu_iface_ops), sizeof(uct_iface_ops_t));

	FIELD(struct ivu_base_iface, ops, uct_base_iface_t, super.ops);
	FIELD(struct ivu_base_iface, internal_ops, uct_base_iface_t, internal_ops);
	FIELD(struct ivu_base_iface, md, uct_base_iface_t, md);
	FIELD(struct ivu_base_iface, am, uct_base_iface_t, am);
	SAME(sizeof(struct ivu_base_iface), sizeof(uct_base_iface_t));
	SAME(sizeof(struct ivu_am_handler), sizeof(uct_am_handler_t));
	SAME(0, offsetof(uct_am_handler_t, cb));
	SAME(8, offsetof(uct_am_handler_t, arg));

	FIELD(struct ivu_iface_attr, put, uct_iface_attr_t, cap.put);
	FIELD(struct ivu_iface_attr, get, uct_iface_attr_t, cap.get);
	FIELD(struct ivu_iface_attr, am, uct_iface_attr_t, cap.am);
	FIELD(struct ivu_iface_attr, am.max_hdr, uct_iface_attr_t, cap.am.max_hdr);
	FIELD(struct ivu_iface_attr, am.max_iov, uct_iface_attr_t, cap.am.max_iov);
	FIELD(struct ivu_iface_attr, put.max_zcopy, uct_iface_attr_t, cap.put.max_zcopy);
	FIELD(struct ivu_iface_attr, put.max_iov, uct_iface_attr_t, cap.put.max_iov);
	FIELD(struct ivu_iface_attr, atomic32.post, uct_iface_attr_t, cap.atomic32.op_flags);
	FIELD(struct ivu_iface_attr, atomic32.fetch, uct_iface_attr_t, cap.atomic32.fop_flags);
	FIELD(struct ivu_iface_attr, atomic64.post, uct_iface_attr_t, cap.atomic64.op_flags);
	FIELD(struct ivu_iface_attr, atomic64.fetch, uct_iface_attr_t, cap.atomic64.fop_flags);
	FIELD(struct ivu_iface_attr, flags, uct_iface_attr_t, cap.flags);
	FIELD(struct ivu_iface_attr, event_flags, uct_iface_attr_t, cap.event_flags);
	FIELD(struct ivu_iface_attr, device_addr_len, uct_iface_attr_t, device_addr_len);
	FIELD(struct ivu_iface_attr, iface_addr_len, uct_iface_attr_t, iface_addr_len);
	FIELD(struct ivu_iface_attr, overhead, uct_iface_attr_t, overhead);
	FIELD(struct ivu_iface_attr, dedicated, uct_iface_attr_t, bandwidth.dedicated);
	FIELD(struct ivu_iface_attr, shared, uct_iface_attr_t, bandwidth.shared);
	FIELD(struct ivu_iface_attr, latency, uct_iface_attr_t, latency);
	FIELD(struct ivu_linear, c, ucs_linear_func_t, c);
	FIELD(struct ivu_iface_attr, priority, uct_iface_attr_t, priority);
	FIELD(struct ivu_iface_attr, max_num_eps, uct_iface_attr_t, max_num_eps);
	FIELD(struct ivu_iface_attr, dev_num_paths, uct_iface_attr_t, dev_num_paths);
	SAME(sizeof(struct ivu_iface_attr), sizeof(uct_iface_attr_t));

	FIELD(struct ivu_completion, func, uct_completion_t, func);
	FIELD(struct ivu_completion, count, uct_completion_t, count);
	FIELD(struct ivu_completion, status, uct_completion_t, status);
	FIELD(struct ivu_iov, buffer, uct_iov_t, buffer);
	FIELD(struct ivu_iov, length, uct_iov_t, length);
	FIELD(struct ivu_iov, stride, uct_iov_t, stride);
	FIELD(struct ivu_iov, count, uct_iov_t, count);
	SAME(sizeof(struct ivu_iov), sizeof(uct_iov_t));
	FIELD(struct ivu_pending, func, uct_pending_req_t, func);
	FIELD(struct ivu_pending, priv, uct_pending_req_t, priv);
	FIELD(struct ivu_ep_params, field_mask, uct_ep_params_t, field_mask);
	FIELD(struct ivu_ep_params, iface, uct_ep_params_t, iface);
	FIELD(struct ivu_ep_params, dev_addr, uct_ep_params_t, dev_addr);
	FIELD(struct ivu_ep_params, iface_addr, uct_ep_params_t, iface_addr);
	SAME(8, sizeof(uct_ep_t));
	SAME(8, sizeof(uct_base_ep_t));
}

static void flags(void)
{
	SAME(sizeof(ivu_status), sizeof(ucs_status_t));
	SAME(IVU_ATOMIC_ADD, UCT_ATOMIC_OP_ADD);
	SAME(IVU_ATOMIC_AND, UCT_ATOMIC_OP_AND);
	SAME(IVU_ATOMIC_OR, UCT_ATOMIC_OP_OR);
	SAME(IVU_ATOMIC_XOR, UCT_ATOMIC_OP_XOR);
	SAME(IVU_ATOMIC_SWAP, UCT_ATOMIC_OP_SWAP);
	SAME(IVU_ATOMIC_CSWAP, UCT_ATOMIC_OP_CSWAP);
	SAME(IVU_FLAG_ATOMIC_CPU, UCT_IFACE_FLAG_ATOMIC_CPU);
	SAME(IVU_OK, UCS_OK);
	SAME(IVU_INPROGRESS, UCS_INPROGRESS);
	SAME(IVU_ERR_NO_RESOURCE, UCS_ERR_NO_RESOURCE);
	SAME(IVU_ERR_IO_ERROR, UCS_ERR_IO_ERROR);
	SAME(IVU_ERR_NO_MEMORY, UCS_ERR_NO_MEMORY);
	SAME(IVU_ERR_INVALID_PARAM, UCS_ERR_INVALID_PARAM);
	SAME(IVU_ERR_UNREACHABLE, UCS_ERR_UNREACHABLE);
	SAME(IVU_ERR_NO_DEVICE, UCS_ERR_NO_DEVICE);
	SAME(IVU_ERR_BUSY, UCS_ERR_BUSY);
	SAME(IVU_ERR_CANCELED, UCS_ERR_CANCELED);
	SAME(IVU_ERR_UNSUPPORTED, UCS_ERR_UNSUPPORTED);
	SAME(IVU_ERR_CONNECTION_RESET, UCS_ERR_CONNECTION_RESET);
	SAME(IVU_ERR_ENDPOINT_TIMEOUT, UCS_ERR_ENDPOINT_TIMEOUT);
	SAME(IVU_FLAG_AM_SHORT, UCT_IFACE_FLAG_AM_SHORT);
	SAME(IVU_FLAG_AM_BCOPY, UCT_IFACE_FLAG_AM_BCOPY);
	SAME(IVU_FLAG_AM_ZCOPY, UCT_IFACE_FLAG_AM_ZCOPY);
	SAME(IVU_FLAG_PENDING, UCT_IFACE_FLAG_PENDING);
	SAME(IVU_FLAG_PUT_SHORT, UCT_IFACE_FLAG_PUT_SHORT);
	SAME(IVU_FLAG_PUT_BCOPY, UCT_IFACE_FLAG_PUT_BCOPY);
	SAME(IVU_FLAG_GET_BCOPY, UCT_IFACE_FLAG_GET_BCOPY);
	SAME(IVU_FLAG_GET_ZCOPY, UCT_IFACE_FLAG_GET_ZCOPY);
	SAME(IVU_FLAG_PUT_ZCOPY, UCT_IFACE_FLAG_PUT_ZCOPY);
	SAME(IVU_FLAG_PEER_FAILURE, UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE);
	SAME(IVU_FLAG_EP_CHECK, UCT_IFACE_FLAG_EP_CHECK);
	SAME(IVU_FLAG_CONNECT_TO_IFACE, UCT_IFACE_FLAG_CONNECT_TO_IFACE);
	SAME(IVU_FLAG_CB_SYNC, UCT_IFACE_FLAG_CB_SYNC);
#if M >= 18
	SAME(IVU_FLAG_INTER_NODE, UCT_IFACE_FLAG_INTER_NODE);
#endif
	SAME(IVU_EVENT_SEND_COMP, UCT_IFACE_FLAG_EVENT_SEND_COMP);
	SAME(IVU_EVENT_RECV, UCT_IFACE_FLAG_EVENT_RECV);
	SAME(IVU_EVENT_FD, UCT_IFACE_FLAG_EVENT_FD);
	SAME(IVU_FLUSH_CANCEL, UCT_FLUSH_FLAG_CANCEL);
	SAME(IVU_PROGRESS_SEND, UCT_PROGRESS_SEND);
	SAME(IVU_PROGRESS_RECV, UCT_PROGRESS_RECV);
	SAME(IVU_MD_FLAG_ALLOC, UCT_MD_FLAG_ALLOC);
	SAME(IVU_MEM_FIXED, UCT_MD_MEM_FLAG_FIXED);
	SAME(IVU_MD_FLAG_REG, UCT_MD_FLAG_REG);
	SAME(IVU_MD_FLAG_NEED_RKEY, UCT_MD_FLAG_NEED_RKEY);
	SAME(IVU_MEMORY_HOST, UCS_MEMORY_TYPE_HOST);
	SAME(IVU_DEVICE_NET, UCT_DEVICE_TYPE_NET);
	SAME(IVU_SYS_DEVICE_UNKNOWN, UCS_SYS_DEVICE_ID_UNKNOWN);
	SAME(IVU_AM_IDS, UCT_AM_ID_MAX);
}

static void component(const struct ivu_abi *a)
{
	FIELD(struct ivu_component, name, uct_component_t, name);
	FIELD(struct ivu_component, query_md_resources, uct_component_t, query_md_resources);
	FIELD(struct ivu_component, md_open, uct_component_t, md_open);
	FIELD(struct ivu_component, cm_open, uct_component_t, cm_open);
	FIELD(struct ivu_component, rkey_unpack, uct_component_t, rkey_unpack);
	FIELD(struct ivu_component, rkey_ptr, uct_component_t, rkey_ptr);
	FIELD(struct ivu_component, rkey_release, uct_component_t, rkey_release);
	SAME(a->md_config, offsetof(uct_component_t, md_config));
	SAME(a->cm_config, offsetof(uct_component_t, cm_config));
	SAME(a->tl_list, offsetof(uct_component_t, tl_list));
	SAME(a->list, offsetof(uct_component_t, list));
	SAME(a->flags, offsetof(uct_component_t, flags));
	SAME(a->md_vfs_init, offsetof(uct_component_t, md_vfs_init));
	SAME(a->md_vfs_init + 8, sizeof(uct_component_t));
#if M >= 16
	SAME(a->rkey_compare, offsetof(uct_component_t, rkey_compare));
#else
	SAME(a->rkey_compare, 0);
#endif
	FIELD(struct ivu_tl, query_devices, uct_tl_t, query_devices);
	FIELD(struct ivu_tl, iface_open, uct_tl_t, iface_open);
	SAME(offsetof(struct ivu_tl, config), offsetof(uct_tl_t, config));
	SAME(a->tl_entry_list, offsetof(uct_tl_t, list));
	FIELD(struct ivu_config_entry, table, ucs_config_global_list_entry_t, table);
	FIELD(struct ivu_config_entry, size, ucs_config_global_list_entry_t, size);
	FIELD(struct ivu_config_entry, list, ucs_config_global_list_entry_t, list);
	FIELD(struct ivu_tl_device, name, uct_tl_device_resource_t, name);
	FIELD(struct ivu_tl_device, type, uct_tl_device_resource_t, type);
	FIELD(struct ivu_tl_device, sys_device, uct_tl_device_resource_t, sys_device);
	SAME(sizeof(struct ivu_tl_device), sizeof(uct_tl_device_resource_t));
	FIELD(struct ivu_md, ops, uct_md_t, ops);
	FIELD(struct ivu_md, component, uct_md_t, component);
	SAME(sizeof(struct ivu_md), sizeof(uct_md_t));
}

/* Returns whether mem_alloc has a device argument. */
static bool alloc_has_device(uct_md_ops_t *ops)
{
	return __builtin_types_compatible_p(typeof(ops->mem_alloc),
					    ucs_status_t (*)(uct_md_h, size_t *, void **, ucs_memory_type_t,
							     ucs_sys_device_t, unsigned, const char *, uct_mem_h *));
}

static void functions(const struct ivu_abi *a)
{
	SAME(a->alloc_has_device, alloc_has_device(NULL));
	SAME(IVU_MD_CLOSE, INDEX(uct_md_ops_t, close));
	SAME(IVU_MD_QUERY, INDEX(uct_md_ops_t, query));
	SAME(IVU_MD_MEM_ALLOC, INDEX(uct_md_ops_t, mem_alloc));
	SAME(IVU_MD_MEM_FREE, INDEX(uct_md_ops_t, mem_free));
	SAME(IVU_MD_MEM_REG, INDEX(uct_md_ops_t, mem_reg));
	SAME(IVU_MD_MEM_DEREG, INDEX(uct_md_ops_t, mem_dereg));
	SAME(a->mkey_pack, INDEX(uct_md_ops_t, mkey_pack));
#if M >= 14
	SAME(a->mem_attach, INDEX(uct_md_ops_t, mem_attach));
#endif
	if (sizeof(uct_md_ops_t) > IVU_MD_OPS_MAX * sizeof(void *))
		same("functions of a memory domain", IVU_MD_OPS_MAX, sizeof(uct_md_ops_t) / sizeof(void *));
#define INTERNAL(ours, theirs) SAME(a->ours, INDEX(uct_iface_internal_ops_t, theirs))
	INTERNAL(estimate_perf, iface_estimate_perf);
	FIELD(struct ivu_perf, field_mask, uct_perf_attr_t, field_mask);
	FIELD(struct ivu_perf, operation, uct_perf_attr_t, operation);
	SAME(IVU_PERF_OPERATION, UCT_PERF_ATTR_FIELD_OPERATION);
	SAME(IVU_OPERATION_PUT_ZCOPY, UCT_EP_OP_PUT_ZCOPY);
	SAME(IVU_OPERATION_GET_ZCOPY, UCT_EP_OP_GET_ZCOPY);
	SAME(IVU_OPERATION_PUT_SHORT, UCT_EP_OP_PUT_SHORT);
	SAME(IVU_OPERATION_PUT_BCOPY, UCT_EP_OP_PUT_BCOPY);
	SAME(IVU_OPERATION_GET_BCOPY, UCT_EP_OP_GET_BCOPY);
	SAME(IVU_OPERATION_AM_SHORT, UCT_EP_OP_AM_SHORT);
	SAME(IVU_OPERATION_AM_ZCOPY, UCT_EP_OP_AM_ZCOPY);
	INTERNAL(vfs_refresh, iface_vfs_refresh);
	INTERNAL(ep_query, ep_query);
	INTERNAL(ep_invalidate, ep_invalidate);
#if M >= 14
	INTERNAL(connect_to_ep_v2, ep_connect_to_ep_v2);
#endif
#if M >= 15
	INTERNAL(is_reachable_v2, iface_is_reachable_v2);
	FIELD(struct ivu_reachable_params, field_mask, uct_iface_is_reachable_params_t, field_mask);
	FIELD(struct ivu_reachable_params, device_addr, uct_iface_is_reachable_params_t, device_addr);
	FIELD(struct ivu_reachable_params, iface_addr, uct_iface_is_reachable_params_t, iface_addr);
	SAME(IVU_REACHABLE_DEVICE_ADDR, UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR);
	SAME(IVU_REACHABLE_IFACE_ADDR, UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR);
#endif
#if M >= 16
	INTERNAL(is_connected, ep_is_connected);
	FIELD(struct ivu_reachable_params, device_addr, uct_ep_is_connected_params_t, device_addr);
	FIELD(struct ivu_reachable_params, iface_addr, uct_ep_is_connected_params_t, iface_addr);
	SAME(IVU_REACHABLE_DEVICE_ADDR, UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR);
	SAME(IVU_REACHABLE_IFACE_ADDR, UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR);
#endif
#if M >= 20
	INTERNAL(device_ep, ep_get_device_ep);
#endif
#if M == 20
	INTERNAL(mem_element_pack, iface_mem_element_pack);
#endif
#if M == 20 || M >= 22
	INTERNAL(query_v2, iface_query_v2);
#endif
#if M >= 22
	INTERNAL(put_sgl, ep_put_sgl_zcopy);
#endif
	if (sizeof(uct_iface_internal_ops_t) > IVU_INTERNAL_OPS_MAX * sizeof(void *))
		same("internal functions", IVU_INTERNAL_OPS_MAX, sizeof(uct_iface_internal_ops_t) / sizeof(void *));
}

static void attributes(const struct ivu_abi *a)
{
#if M == 13
	SAME(a->attr_max_alloc, offsetof(uct_md_attr_t, cap.max_alloc));
	SAME(a->attr_alloc_mem_types, offsetof(uct_md_attr_t, cap.alloc_mem_types));
	SAME(a->attr_max_reg, offsetof(uct_md_attr_t, cap.max_reg));
	SAME(a->attr_flags, offsetof(uct_md_attr_t, cap.flags));
	SAME(a->attr_reg_mem_types, offsetof(uct_md_attr_t, cap.reg_mem_types));
	SAME(a->attr_access_mem_types, offsetof(uct_md_attr_t, cap.access_mem_types));
#define ATTR uct_md_attr_t
#else
	SAME(a->attr_max_alloc, offsetof(uct_md_attr_v2_t, max_alloc));
	SAME(a->attr_alloc_mem_types, offsetof(uct_md_attr_v2_t, alloc_mem_types));
	SAME(a->attr_max_reg, offsetof(uct_md_attr_v2_t, max_reg));
	SAME(a->attr_flags, offsetof(uct_md_attr_v2_t, flags));
	SAME(a->attr_reg_mem_types, offsetof(uct_md_attr_v2_t, reg_mem_types));
	SAME(a->attr_access_mem_types, offsetof(uct_md_attr_v2_t, access_mem_types));
	SAME(a->attr_cache_mem_types, offsetof(uct_md_attr_v2_t, cache_mem_types));
#define ATTR uct_md_attr_v2_t
#endif
	SAME(a->attr_reg_cost, offsetof(ATTR, reg_cost));
	SAME(a->attr_component, offsetof(ATTR, component_name));
	SAME(a->attr_rkey_size, offsetof(ATTR, rkey_packed_size));
	SAME(a->attr_cpus, offsetof(ATTR, local_cpus));
	SAME(128, sizeof(((ATTR *) 0)->local_cpus));
	SAME(a->attr_bytes, sizeof(ATTR));
#if M >= 16
	SAME(a->attr_alignment, offsetof(ATTR, reg_alignment));
#endif
	FIELD(struct ivu_mem_dereg, flags, uct_md_mem_dereg_params_t, flags);
	FIELD(struct ivu_mem_dereg, memh, uct_md_mem_dereg_params_t, memh);
	FIELD(struct ivu_mem_dereg, comp, uct_md_mem_dereg_params_t, comp);
	SAME(IVU_MEM_DEREG_MEMH, UCT_MD_MEM_DEREG_FIELD_MEMH);
	SAME(IVU_MEM_DEREG_FLAGS, UCT_MD_MEM_DEREG_FIELD_FLAGS);
	SAME(IVU_MEM_DEREG_INVALIDATE, UCT_MD_MEM_DEREG_FLAG_INVALIDATE);
}

int main(void)
{
	struct ivu_abi a;

	if (!ivu_abi_of(M, &a)) {
		printf("UCX 1.%d: not known here\n", M);
		return 1;
	}
	interface();
	flags();
	component(&a);
	functions(&a);
	attributes(&a);
	if (!wrong)
		printf("UCX 1.%d: as expected\n", M);
	return wrong;
}
