/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

#include "support/test.h"

typedef struct item {
    int number;
    psrti_list_t link;
} item_t;

static void check_order(psrti_list_t *head, const int *numbers, size_t count)
{
    size_t i = 0;
    PSRTI_LIST_FOREACH_SAFE(it, tmp, head)
    {
        cr_assert(i < count);
        cr_assert_eq(PSRTI_LIST_ENTRY(it, item_t, link)->number, numbers[i]);
        cr_assert(it->next->prev == it);
        i++;
    }
    cr_assert_eq(i, count);
}

Test(list, push_insert_remove_pop)
{
    psrti_list_t head;
    item_t items[4] = { { 10, { 0 } }, { 11, { 0 } }, { 12, { 0 } }, { 13, { 0 } } };
    psrti_list_init(&head);
    cr_assert(psrti_list_empty(&head));
    cr_assert(psrti_list_pop(&head) == NULL);
    for (int i = 0; i < 3; i++)
        psrti_list_push(&head, &items[i].link);
    psrti_list_insert_before(&items[1].link, &items[3].link);
    check_order(&head, (const int[]){ 10, 13, 11, 12 }, 4);
    psrti_list_remove(&items[1].link);
    psrti_list_remove(&items[1].link);
    check_order(&head, (const int[]){ 10, 13, 12 }, 3);
    cr_assert(psrti_list_pop(&head) == &items[0].link);
    check_order(&head, (const int[]){ 13, 12 }, 2);
}

Test(list, foreach_survives_removal_of_the_current)
{
    psrti_list_t head;
    item_t items[5];
    psrti_list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i].number = i;
        psrti_list_push(&head, &items[i].link);
    }
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &head)
    if (PSRTI_LIST_ENTRY(it, item_t, link)->number % 2) psrti_list_remove(it);
    check_order(&head, (const int[]){ 0, 2, 4 }, 3);
}
