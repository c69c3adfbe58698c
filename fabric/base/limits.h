/* The provider's name, and the limits that it reports to libfabric. */
#ifndef IVS_LIMITS_H
#define IVS_LIMITS_H

#include <stddef.h>

#include <rdma/fabric.h>

#define IVS_NAME	"ivshmem"
#define IVS_VERSION	FI_VERSION(0, 1)
#define IVS_CORE_ONLY	(1ULL << 59) /* fi_getinfo: no layers on top */
#define IVS_HIDDEN	(1ULL << 60) /* fi_getinfo: also providers that FI_PROVIDER hides */
#define IVS_ORDER_DATA	(1ULL << 16) /* FI_ORDER_DATA, deprecated in libfabric */
#define IVS_IOV_MAX	4
#define IVS_PIECES_MAX	8    /* pieces of memory that one RMA operation reaches */
#define IVS_INJECT_MAX	4096 /* bytes */
#define IVS_ATOMIC_MAX	4096 /* bytes of operand */
#define IVS_MSG_MAX	((size_t) 1 << 46)
#define IVS_CQ_SIZE	4096
#define IVS_CQ_UNREAD	65536 /* unread completions at which sending stops */
#define IVS_TX_SIZE	1024
#define IVS_RX_SIZE	4096
#define IVS_MR_BASIC	1 /* libfabric's FI_MR_BASIC and FI_MR_SCALABLE, deprecated there */
#define IVS_MR_SCALABLE 2
#define IVS_ADDR_FORMAT (1U << 31) /* provider specific */

#endif /* IVS_LIMITS_H */
