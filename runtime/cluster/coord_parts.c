/* SPDX-License-Identifier: Apache-2.0 */
/* Which servers have a part of a table: only those are told of it, so that what a server holds and hears
 * does not grow with the tables of the others. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/coord_internal.h"

static void set_part(const psrti_coord_t *c, table_t *t, uint16_t vshard)
{
    uint32_t server = c->server_of_owner[c->owner_of_vshard[vshard]];

    t->parts[server / 64] |= 1ull << server % 64;
}

void psrti_coord_find_parts(const psrti_coord_t *c, table_t *t)
{
    uint64_t slices = psrti_slice_count(t->spec.elements);
    uint64_t hash = psrti_hash_bytes(t->spec.name, strlen(t->spec.name));

    if (c->nowners == 0) return;
    for (uint64_t i = 0; i < slices && i < c->p.vshards; i++)
        set_part(c, t, psrti_slice_vshard(hash, i, c->p.vshards));
    set_part(c, t, psrti_table_spec_group_vshard(&t->spec, c->p.vshards));
}

/* Calls fn for every server that has a part. */
static void each_part(const psrti_coord_t *c, const table_t *t, uint32_t index,
                      void (*fn)(psrti_dealt_t *d, uint32_t server, uint32_t index),
                      psrti_dealt_t *d)
{
    for (uint32_t w = 0; w <= c->p.servers / 64; w++)
        for (uint64_t bits = t->parts[w]; bits; bits &= bits - 1)
            fn(d, w * 64 + (uint32_t)__builtin_ctzll(bits), index);
}

static void count(psrti_dealt_t *d, uint32_t server, uint32_t index)
{
    (void)index;
    d->first[server + 1]++;
}

static void put(psrti_dealt_t *d, uint32_t server, uint32_t index)
{
    d->index[d->first[server]++] = index;
}

psrt_status_t psrti_coord_deal(const psrti_coord_t *c, const uint32_t *ids, uint32_t n,
                               psrti_dealt_t *d)
{
    uint32_t servers = c->p.servers;

    d->index = NULL;
    d->first = calloc(servers + 2, sizeof *d->first);
    if (!d->first) return PSRT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        const table_t *t = psrti_map_get(&c->by_id, ids[i]);
        if (t) each_part(c, t, i, count, d);
    }
    for (uint32_t s = 0; s < servers; s++)
        d->first[s + 1] += d->first[s];
    d->index = malloc((d->first[servers] + 1) * sizeof *d->index);
    if (!d->index) {
        psrti_coord_dealt_free(d);
        return PSRT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        const table_t *t = psrti_map_get(&c->by_id, ids[i]);
        if (t) each_part(c, t, i, put, d);
    }
    /* Each place has moved on to where the next server's begins. */
    memmove(d->first + 1, d->first, servers * sizeof *d->first);
    d->first[0] = 0;
    return PSRT_OK;
}

void psrti_coord_dealt_free(psrti_dealt_t *d)
{
    free(d->first);
    free(d->index);
}
