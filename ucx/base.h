/* The per-process state: parameters, ways to copy, and the number of forks. */
#ifndef IVU_BASE_H
#define IVU_BASE_H

/* How often this process was forked: objects opened at a lower number belong to its parent. */
extern unsigned int ivu_forks;

/* Reads the parameters, chooses how to copy, and counts forks from now on. Called once. */
void ivu_base_init(void);

#endif /* IVU_BASE_H */
