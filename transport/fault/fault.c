/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: wraps a transport and loses, doubles, swaps, delays and cuts by a seed.
 *
 * iface_open and probe have no argument that could say which wrapper they belong to, so each wrapper
 * takes one of SLOTS tables whose two functions know their number.
 */
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/spec.h"
#include "base/util.h"
#include "transport/fault/fault.h"

#define SLOTS 16

typedef psrti_fault_t fault_t;

static fault_t slots[SLOTS]; /* guarded by slots_lock while taken and given back */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- wrappers ---------------------------------------------------------------------------------- */

#define EACH_SLOT(X)                                                                               \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

#define SLOT_FUNCTIONS(n)                                                                          \
    static psrt_status_t open_##n(const psrt_iface_params_t *params, psrt_iface_t **iface_p)       \
    {                                                                                              \
        return psrti_fault_iface_open(&slots[n], params, iface_p);                                 \
    }                                                                                              \
    static psrt_status_t probe_##n(char *why, size_t why_size)                                     \
    {                                                                                              \
        return slots[n].inner->probe(why, why_size);                                               \
    }
EACH_SLOT(SLOT_FUNCTIONS)

static const struct {
    psrt_status_t (*open)(const psrt_iface_params_t *params, psrt_iface_t **iface_p);
    psrt_status_t (*probe)(char *why, size_t why_size);
} slot_functions[SLOTS] = {
#define SLOT_ROW(n) { open_##n, probe_##n },
    EACH_SLOT(SLOT_ROW)
};

static psrt_status_t parse(const char *text, fault_t *fault)
{
    static const char *const keys[] = { "seed", "drop", "dup", "reorder", "delay", "cut", "ctrl" };
    double value[PSRTI_COUNT(keys)] = { 0 };
    char full[PSRTI_SPEC_TEXT];
    size_t pos = 0;
    psrti_spec_t spec;
    psrt_status_t status =
        psrti_append(full, sizeof full, &pos, text[0] ? "fault:%s" : "fault%s", text);
    if (status != PSRT_OK) return psrti_fail(PSRT_ERR_INVALID, "fault: text too long: %s", text);
    status = psrti_spec_parse("fault", full, &spec);
    if (status == PSRT_OK)
        status = psrti_spec_numbers("fault", &spec, keys, value, PSRTI_COUNT(keys));
    if (status != PSRT_OK) return status;
    double sum = 0;
    for (int i = 1; i < 6; i++) {
        sum += value[i];
        if (!(value[i] >= 0 && sum <= 1))
            return psrti_fail(PSRT_ERR_INVALID,
                              "fault: %s=%g: shares are 0 to 1, together at most 1", keys[i],
                              value[i]);
    }
    if (!(value[0] >= 0 && value[0] < 0x1p53))
        return psrti_fail(PSRT_ERR_INVALID, "fault: seed=%g is not from 0 to 2^53", value[0]);
    fault->seed = (uint64_t)value[0];
    fault->drop = value[1];
    fault->dup = value[2];
    fault->reorder = value[3];
    fault->delay = value[4];
    fault->cut = value[5];
    fault->ctrl = value[6] != 0;
    return PSRT_OK;
}

static void fill(fault_t *fault, const psrt_transport_ops_t *inner, size_t slot)
{
    snprintf(fault->name, sizeof fault->name, "fault(%s)", inner->name);
    fault->inner = inner;
    psrti_fault_fill_ops(fault);
    fault->ops.name = fault->name;
    fault->ops.caps = inner->caps;
    fault->ops.score = inner->score;
    fault->ops.probe = slot_functions[slot].probe;
    fault->ops.iface_open = slot_functions[slot].open;
}

psrt_status_t psrti_transport_fault_create(const psrt_transport_ops_t *inner, const char *spec,
                                           const psrt_transport_ops_t **ops_p)
{
    fault_t parsed = { 0 };
    psrt_status_t status = parse(spec, &parsed);
    if (status != PSRT_OK) return status;
    size_t slot = 0;
    pthread_mutex_lock(&slots_lock);
    while (slot < SLOTS && slots[slot].used)
        slot++;
    if (slot < SLOTS) {
        slots[slot] = parsed;
        slots[slot].used = 1;
    }
    pthread_mutex_unlock(&slots_lock);
    if (slot == SLOTS)
        return psrti_fail(PSRT_ERR_LIMIT, "fault: more than %d wrappers in this process", SLOTS);
    fill(&slots[slot], inner, slot);
    *ops_p = &slots[slot].ops;
    return PSRT_OK;
}

void psrti_transport_fault_destroy(const psrt_transport_ops_t *ops)
{
    if (!ops) return;
    pthread_mutex_lock(&slots_lock);
    PSRTI_CONTAINER_OF(ops, fault_t, ops)->used = 0;
    pthread_mutex_unlock(&slots_lock);
}

void psrti_transport_fault_counts(const psrt_transport_ops_t *ops, psrti_fault_counts_t *out)
{
    fault_t *fault = PSRTI_CONTAINER_OF(ops, fault_t, ops);
    *out = (psrti_fault_counts_t){
        .drop = atomic_load(&fault->counts[PSRTI_FAULT_DROP]),
        .dup = atomic_load(&fault->counts[PSRTI_FAULT_DUP]),
        .reorder = atomic_load(&fault->counts[PSRTI_FAULT_REORDER]),
        .delay = atomic_load(&fault->counts[PSRTI_FAULT_DELAY]),
        .cut = atomic_load(&fault->counts[PSRTI_FAULT_CUT_BEFORE]) +
               atomic_load(&fault->counts[PSRTI_FAULT_CUT_AFTER]),
    };
}
