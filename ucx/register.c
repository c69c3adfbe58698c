/* Both transports, assembled and registered with UCX. */
#include "iface.h"
#include "memory.h"
#include "register.h"
#include "window.h"

static struct ivu_transport messages = {
	.component.name = IVU_NAME,
	.tl.name = IVU_NAME,
	.device = IVU_DEVICE,
	.md_name = IVU_NAME " memory domain",
	.md_prefix = "IVSHMEM_MD_",
	.tl_name = IVU_NAME " transport",
	.tl_prefix = "IVSHMEM_",
};

static struct ivu_transport window = {
	.component.name = IVU_WINDOW_NAME,
	.tl.name = IVU_WINDOW_NAME,
	.device = IVU_WINDOW_DEVICE,
	.md_name = IVU_WINDOW_NAME " memory domain",
	.md_prefix = "IVSHMEM_M_MD_",
	.tl_name = IVU_WINDOW_NAME " transport",
	.tl_prefix = "IVSHMEM_M_",
};

void ivu_register(void)
{
	ivu_transport_fill(&messages);
	ivu_memory_domain(&messages);
	ivu_memory_ops(&messages);
	ivu_iface_transport(&messages);
	ivu_transport_show(&messages);
	if (!ivu_window_usable())
		return;
	ivu_transport_fill(&window);
	ivu_memory_domain(&window);
	ivu_window_transport(&window);
	ivu_transport_show(&window);
}
