/* The remote shell of programs in the VM: nearmetal-rsh [options] VM COMMAND… */
#ifndef NM_RSH_H
#define NM_RSH_H

int rsh_main(int argc, char **argv);

#endif
