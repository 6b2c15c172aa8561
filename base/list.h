/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked ring list. A head is a node that points at itself. */
#ifndef PSRTI_BASE_LIST_H
#define PSRTI_BASE_LIST_H

#include "base/util.h"

typedef struct psrti_list {
    struct psrti_list *next, *prev;
} psrti_list_t;

static inline void psrti_list_init(psrti_list_t *head) { head->next = head->prev = head; }
static inline int psrti_list_empty(const psrti_list_t *head) { return head->next == head; }
static inline void psrti_list_insert_before(psrti_list_t *pos, psrti_list_t *node)
{
    node->prev = pos->prev;
    node->next = pos;
    pos->prev->next = node;
    pos->prev = node;
}
static inline void psrti_list_push(psrti_list_t *head, psrti_list_t *node)
{
    psrti_list_insert_before(head, node);
}
/* Leaves the node pointing at itself, so that removing twice is harmless. */
static inline void psrti_list_remove(psrti_list_t *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = node;
}
static inline psrti_list_t *psrti_list_pop(psrti_list_t *head)
{
    psrti_list_t *node = head->next;
    if (node == head) return NULL;
    psrti_list_remove(node);
    return node;
}
#define PSRTI_LIST_ENTRY(node, type, member) PSRTI_CONTAINER_OF(node, type, member)
#define PSRTI_LIST_FOREACH_SAFE(it, tmp, head)                                                     \
    for (psrti_list_t *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

#endif
