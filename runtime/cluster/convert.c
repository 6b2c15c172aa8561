/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cluster/convert.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- table specifications -------------------------------------------------------------------- */

void psrti_spec_to_wire(const psrti_table_spec_t *spec, Psrt__TableSpec *out)
{
    psrt__table_spec__init(out);
    out->name = (char *)spec->name;
    out->value_dtype = (uint32_t)spec->value_dtype;
    out->grad_dtype = (uint32_t)spec->grad_dtype;
    out->acc_dtype = (uint32_t)spec->acc_dtype;
    out->n_shape = (size_t)spec->ndim;
    out->shape = (uint64_t *)spec->shape;
    out->init = (char *)spec->init;
    out->optimizer = (char *)spec->optimizer;
    out->consistency = (uint32_t)spec->consistency;
    out->staleness = spec->staleness;
    out->backup = spec->backup;
    out->average = spec->average != 0;
    out->deterministic = spec->deterministic != 0;
    out->codec = (uint32_t)spec->codec;
    out->group = (char *)spec->group;
}

static int copy_text(char *out, size_t size, const char *in)
{
    size_t len = strlen(in);

    if (len >= size) return 0;
    memcpy(out, in, len + 1);
    return 1;
}

psrt_status_t psrti_spec_from_wire(const Psrt__TableSpec *in, psrti_table_spec_t *spec)
{
    psrti_table_spec_t s;

    memset(&s, 0, sizeof s);
    if (!in || in->n_shape > PSRT_MAX_DIMS || in->value_dtype > 255 || in->grad_dtype > 255 ||
        in->acc_dtype > 255 || in->consistency > PSRTI_SSP || in->codec >= PSRTI_CODECS)
        return psrti_fail(PSRT_ERR_PROTOCOL, "malformed table specification");
    if (!copy_text(s.name, sizeof s.name, in->name) ||
        !copy_text(s.init, sizeof s.init, in->init) ||
        !copy_text(s.optimizer, sizeof s.optimizer, in->optimizer) ||
        !copy_text(s.group, sizeof s.group, in->group))
        return psrti_fail(PSRT_ERR_PROTOCOL, "table specification: a text is too long");
    s.value_dtype = (psrt_dtype_t)in->value_dtype;
    s.grad_dtype = (psrt_dtype_t)in->grad_dtype;
    s.acc_dtype = (psrt_dtype_t)in->acc_dtype;
    s.ndim = (int)in->n_shape;
    s.elements = 1;
    for (size_t i = 0; i < in->n_shape; i++) {
        s.shape[i] = in->shape[i];
        if (!psrti_mul_u64(s.elements, in->shape[i], &s.elements))
            return psrti_fail(PSRT_ERR_PROTOCOL, "table \"%s\": shape overflows", s.name);
    }
    s.consistency = (psrti_consistency_t)in->consistency;
    s.staleness = in->staleness;
    s.backup = in->backup;
    s.average = in->average;
    s.deterministic = in->deterministic;
    s.codec = (psrti_codec_t)in->codec;
    psrt_status_t st = psrti_table_spec_check(&s);
    if (st == PSRT_OK) *spec = s;
    return st;
}

/* ---- views ----------------------------------------------------------------------------------- */

void psrti_owner_to_wire(const psrti_view_owner_t *owner, Psrt__Owner *out, char **addrs)
{
    psrt__owner__init(out);
    out->server = owner->server;
    out->thread = owner->thread;
    out->incarnation = owner->incarnation;
    out->alive = owner->alive != 0;
    out->host = (char *)owner->host;
    out->n_addr = owner->naddrs;
    out->addr = addrs;
    for (uint32_t i = 0; i < owner->naddrs; i++)
        addrs[i] = (char *)owner->addr[i];
}

/* Storage of `count` owners with their lists, in one block behind the pointers. */
typedef struct owner_slot {
    Psrt__Owner owner;
    char *addrs[PSRTI_ADDRS_PER_OWNER];
} owner_slot_t;

Psrt__Owner **psrti_owners_to_wire(const psrti_view_owner_t *owners, uint32_t count)
{
    Psrt__Owner **list = malloc((count + 1) * (sizeof *list + sizeof(owner_slot_t)));

    if (!list) return NULL;
    owner_slot_t *slots = (owner_slot_t *)(list + count + 1);
    for (uint32_t i = 0; i < count; i++) {
        psrti_owner_to_wire(&owners[i], &slots[i].owner, slots[i].addrs);
        list[i] = &slots[i].owner;
    }
    return list;
}

typedef struct view_block {
    Psrt__View view; /* first */
    /* then: worker pointers, owner pointers, workers, owner slots, vshard owners, vshard terms */
} view_block_t;

Psrt__View *psrti_view_to_wire(const psrti_view_t *view)
{
    size_t nw = view->nworkers, no = view->nowners, nv = view->nvshards;
    size_t size = sizeof(view_block_t) + nw * (sizeof(void *) + sizeof(Psrt__Worker)) +
                  no * (sizeof(void *) + sizeof(owner_slot_t)) + nv * 2 * sizeof(uint32_t);
    view_block_t *block = malloc(size);

    if (!block) return NULL;
    Psrt__View *out = &block->view;
    psrt__view__init(out);
    out->number = view->number;
    out->generation = view->generation;
    out->n_workers = nw;
    out->workers = (Psrt__Worker **)(block + 1);
    out->n_owners = no;
    out->owners = (Psrt__Owner **)(out->workers + nw);
    Psrt__Worker *workers = (Psrt__Worker *)(out->owners + no);
    owner_slot_t *slots = (owner_slot_t *)(workers + nw);
    out->n_vshard_owner = out->n_vshard_term = nv;
    out->vshard_owner = (uint32_t *)(slots + no);
    out->vshard_term = out->vshard_owner + nv;
    for (size_t i = 0; i < nw; i++) {
        psrti_worker_to_wire(&view->workers[i], &workers[i]);
        out->workers[i] = &workers[i];
    }
    for (size_t i = 0; i < no; i++) {
        psrti_owner_to_wire(&view->owners[i], &slots[i].owner, slots[i].addrs);
        out->owners[i] = &slots[i].owner;
    }
    for (size_t i = 0; i < nv; i++) {
        out->vshard_owner[i] = view->vshards[i].owner;
        out->vshard_term[i] = view->vshards[i].term;
    }
    return out;
}

psrt_status_t psrti_owner_from_wire(const Psrt__Owner *in, psrti_view_owner_t *owner)
{
    memset(owner, 0, sizeof *owner);
    if (in->server >= PSRTI_MAX_RANKS || in->thread >= PSRTI_MAX_RANKS ||
        in->n_addr > PSRTI_ADDRS_PER_OWNER)
        return psrti_fail(PSRT_ERR_PROTOCOL, "malformed server thread");
    owner->server = in->server;
    owner->thread = in->thread;
    owner->incarnation = in->incarnation;
    owner->alive = in->alive;
    if (!copy_text(owner->host, sizeof owner->host, in->host))
        return psrti_fail(PSRT_ERR_PROTOCOL, "server:%u: the name of its host is too long",
                          in->server);
    owner->naddrs = (uint32_t)in->n_addr;
    for (size_t i = 0; i < in->n_addr; i++)
        if (!copy_text(owner->addr[i], PSRT_ADDR_MAX, in->addr[i]))
            return psrti_fail(PSRT_ERR_PROTOCOL, "server:%u: an address is too long", in->server);
    return PSRT_OK;
}

void psrti_worker_to_wire(const psrti_view_worker_t *worker, Psrt__Worker *out)
{
    psrt__worker__init(out);
    out->incarnation = worker->incarnation;
    out->alive = worker->alive != 0;
    out->finished = worker->finished != 0;
    out->host = (char *)worker->host;
    out->addrs = (char *)worker->addrs;
}

psrt_status_t psrti_worker_from_wire(const Psrt__Worker *in, psrti_view_worker_t *worker)
{
    memset(worker, 0, sizeof *worker);
    worker->incarnation = in->incarnation;
    worker->alive = in->alive;
    worker->finished = in->finished;
    if (!copy_text(worker->host, PSRTI_VIEW_HOST, in->host))
        return psrti_fail(PSRT_ERR_PROTOCOL, "a worker: the name of its host is too long");
    if (!copy_text(worker->addrs, PSRTI_VIEW_ADDRS, in->addrs))
        return psrti_fail(PSRT_ERR_PROTOCOL, "a worker: its addresses are too long");
    return PSRT_OK;
}

static psrt_status_t fill_view(const Psrt__View *in, psrti_view_t *view)
{
    view->number = in->number;
    view->generation = in->generation;
    for (size_t i = 0; i < in->n_workers; i++) {
        psrt_status_t st = psrti_worker_from_wire(in->workers[i], &view->workers[i]);
        if (st != PSRT_OK) return st;
    }
    for (size_t i = 0; i < in->n_owners; i++) {
        psrt_status_t st = psrti_owner_from_wire(in->owners[i], &view->owners[i]);
        if (st != PSRT_OK) return st;
    }
    for (size_t i = 0; i < in->n_vshard_owner; i++) {
        if (in->vshard_owner[i] >= in->n_owners)
            return psrti_fail(PSRT_ERR_PROTOCOL, "view: virtual shard %zu has no owner", i);
        view->vshards[i].owner = (uint16_t)in->vshard_owner[i];
        view->vshards[i].term = in->vshard_term[i];
    }
    return PSRT_OK;
}

psrt_status_t psrti_view_from_wire(const Psrt__View *in, psrti_view_t **view_p)
{
    if (in->n_workers > PSRTI_MAX_RANKS || in->n_owners > PSRTI_MAX_RANKS ||
        in->n_vshard_owner > PSRTI_MAX_RANKS || in->n_vshard_owner != in->n_vshard_term ||
        in->since)
        return psrti_fail(PSRT_ERR_PROTOCOL, "malformed view");
    psrti_view_t *view = psrti_view_new((uint32_t)in->n_workers, (uint32_t)in->n_owners,
                                        (uint32_t)in->n_vshard_owner);
    if (!view) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a view");
    psrt_status_t st = fill_view(in, view);
    if (st == PSRT_OK)
        *view_p = view;
    else
        psrti_view_unref(view);
    return st;
}

psrt_status_t psrti_lease_check(uint64_t heartbeat_ns, uint64_t lease_ns)
{
    if (heartbeat_ns && lease_ns / 2 >= heartbeat_ns) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "PSRT_LEASE of %.3g s is shorter than two times PSRT_HEARTBEAT of %.3g s",
                      (double)lease_ns / 1e9, (double)heartbeat_ns / 1e9);
}

psrt_status_t psrti_status_from_wire(int32_t status)
{
    psrt_status_t st = (psrt_status_t)status;

    return strcmp(psrt_status_name(st), "PSRT_UNKNOWN") == 0 ? PSRT_ERR_PROTOCOL : st;
}

/* ---- table entries --------------------------------------------------------------------------- */

psrt_status_t psrti_wire_tables_init(psrti_wire_tables_t *t, size_t capacity)
{
    memset(t, 0, sizeof *t);
    t->capacity = capacity;
    t->list = calloc(capacity + 1, sizeof *t->list);
    t->tables = calloc(capacity + 1, sizeof *t->tables);
    t->specs = calloc(capacity + 1, sizeof *t->specs);
    if (t->list && t->tables && t->specs) return PSRT_OK;
    psrti_wire_tables_free(t);
    return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for %zu tables", capacity);
}

void psrti_wire_tables_add(psrti_wire_tables_t *t, uint32_t id, psrt_status_t status,
                           const char *text, const psrti_table_spec_t *spec, uint64_t first_step)
{
    Psrt__Table *table = &t->tables[t->count];

    psrt__table__init(table);
    table->id = id;
    table->status = (int32_t)status;
    if (text) table->text = (char *)text;
    table->first_step = first_step;
    if (spec) {
        psrti_spec_to_wire(spec, &t->specs[t->count]);
        table->spec = &t->specs[t->count];
    }
    t->list[t->count++] = table;
}

void psrti_wire_tables_free(psrti_wire_tables_t *t)
{
    free(t->list);
    free(t->tables);
    free(t->specs);
    memset(t, 0, sizeof *t);
}
