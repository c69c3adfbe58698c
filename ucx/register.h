/* Registration of the transports with UCX. */
#ifndef IVU_REGISTER_H
#define IVU_REGISTER_H

#define IVU_NAME	  "ivshmem"
#define IVU_WINDOW_NAME	  "ivshmem_m" /* of the transport for memory of the region */
#define IVU_DEVICE	  "ivshmem0"
#define IVU_WINDOW_DEVICE "ivshmem_m0"

/* Registers both with the UCX of this process, which ivu_uct_open() has found. Called once. */
void ivu_register(void);

#endif /* IVU_REGISTER_H */
