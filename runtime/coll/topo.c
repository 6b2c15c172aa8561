/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/topo.h"

#include <stdlib.h>

#include "base/util.h"

typedef struct entry {
    uint64_t host;
    uint32_t place, rank;
    uint32_t number; /* of its host */
} entry_t;

static int by_host(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->host != y->host) return x->host < y->host ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_number(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of the entries by host: hosts get the lowest of their ranks as a number, which orders them. */
static void number_hosts(entry_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i].number = i && list[i].host == list[i - 1].host ? list[i - 1].number : list[i].rank;
}

static void fill(psrti_coll_topo_t *t, const entry_t *list)
{
    for (uint32_t i = 0; i < t->ranks; i++) {
        if (!i || list[i].number != list[i - 1].number) t->first[t->hosts++] = i;
        t->order[i] = list[i].rank;
        t->at[list[i].rank] = i;
        t->host[list[i].rank] = t->hosts - 1;
    }
    t->first[t->hosts] = t->ranks;
    t->fewest = t->ranks;
    for (uint32_t h = 0; h < t->hosts; h++) {
        uint32_t size = t->first[h + 1] - t->first[h];
        t->fewest = PSRTI_MIN(t->fewest, size);
        t->most = PSRTI_MAX(t->most, size);
    }
}

psrti_coll_topo_t *psrti_coll_topo_new(uint32_t ranks, const uint64_t *host, const uint32_t *place)
{
    psrti_coll_topo_t *t = calloc(1, sizeof *t + (4 * (size_t)ranks + 1) * sizeof *t->order);
    entry_t *list = malloc((ranks + (size_t)1) * sizeof *list);

    if (!t || !list) {
        free(list);
        free(t);
        return NULL;
    }
    for (uint32_t r = 0; r < ranks; r++)
        list[r] = (entry_t){ .host = host[r], .place = place[r], .rank = r };
    qsort(list, ranks, sizeof *list, by_host);
    number_hosts(list, ranks);
    qsort(list, ranks, sizeof *list, by_number);
    t->ranks = ranks;
    t->order = (uint32_t *)(t + 1);
    t->at = t->order + ranks;
    t->host = t->at + ranks;
    t->first = t->host + ranks;
    fill(t, list);
    free(list);
    return t;
}

void psrti_coll_topo_free(psrti_coll_topo_t *topo) { free(topo); }
