/* What this process has once: parameters, ways to copy, and how often it was forked off. */
#ifndef IVU_BASE_H
#define IVU_BASE_H

/* How often this process was forked off: what was opened before is its parent's. */
extern unsigned int ivu_forks;

/* Reads the parameters, chooses how to copy, and counts forks from now on. Once. */
void ivu_base_init(void);

#endif /* IVU_BASE_H */
