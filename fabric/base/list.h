/* A doubly linked list whose head is also an element. */
#ifndef IVS_LIST_H
#define IVS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ivs_list {
	struct ivs_list *next, *prev;
};

static inline void ivs_list_init(struct ivs_list *l)
{
	l->next = l->prev = l;
}

static inline bool ivs_list_empty(const struct ivs_list *l)
{
	return l->next == l;
}

static inline void ivs_list_add(struct ivs_list *head, struct ivs_list *e)
{
	e->next = head;
	e->prev = head->prev;
	head->prev->next = e;
	head->prev = e;
}

static inline void ivs_list_del(struct ivs_list *e)
{
	e->prev->next = e->next; /* NOLINT(clang-analyzer-unix.Malloc): the analyzer does not follow lists */
	e->next->prev = e->prev;
	e->next = e->prev = e;
}

#define ivs_entry(ptr, type, field) ((type *) (void *) ((char *) (ptr) - offsetof(type, field)))

#define ivs_list_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)

/* Like ivs_list_each, but the loop body may remove pos from the list. */
#define ivs_list_each_safe(pos, tmp, head) \
	for (pos = (head)->next, tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

#endif /* IVS_LIST_H */
