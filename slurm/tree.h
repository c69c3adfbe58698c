/* Removing a directory that a user may have written to, as root. */
#ifndef NM_TREE_H_
#define NM_TREE_H_

/*
 * Remove name below the directory dir, with everything in it; symbolic links are removed and
 * never followed, and other file systems are left alone. Returns 0 also where
 * nothing is there, else -1 with errno.
 */
int nm_tree_remove(int dir, const char *name);

#endif /* NM_TREE_H_ */
