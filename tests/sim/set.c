/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters that are set for a step. What the coordinator decides is written down when it
 * sends the first word of it; at that moment no slice may have closed the step, and from then on
 * the model computes with it. Nothing else changes anything. */
#include <math.h>
#include <string.h>

#include "runtime/worker/client_int.h" /* the number of a table */
#include "sim.h"

static sim_table_t *by_id(sim_t *sim, uint32_t id)
{
    for (int i = 0; i < sim->ntables; i++)
        if (sim->table[i].id == id) return &sim->table[i];
    return NULL;
}

static int index_of(const char *key) { return strcmp(key, "momentum") == 0; }

/* The rate of update `step`. */
static double rate(const sim_schedule_t *s, double lr, uint64_t step)
{
    double p = (double)step - s->warmup;
    if (p < 0) return lr * ((double)step + 1) / (s->warmup + 1);
    if (s->kind == SIM_BY_STEPS) return ldexp(lr, -(int)(p / s->period));
    if (s->kind == SIM_LINEAR) return p < s->total ? lr + (s->final - lr) * p / s->total : s->final;
    return lr;
}

/* The last set of a parameter that holds from this step or an earlier one. */
static void set_params(const sim_table_t *t, const sim_slice_t *s, uint64_t step, double params[2])
{
    if (t->spec.consistency != PSRTI_SYNC) {
        memcpy(params, s->params, sizeof s->params);
        return;
    }
    params[0] = params[1] = 0.5;
    for (size_t i = 0; i < t->nsets; i++)
        if (t->set[i].from_step <= step) params[t->set[i].index] = t->set[i].value;
}

void sim_params(const sim_table_t *t, const sim_slice_t *s, uint64_t step, double params[2])
{
    set_params(t, s, step, params);
    params[0] = rate(&t->schedule, params[0], step);
}

static void write_down(sim_t *sim, uint64_t from_step)
{
    sim_table_t *t = by_id(sim, sim->set.table);
    if (!t || t->nsets == PSRTI_COUNT(t->set)) {
        sim_fail(sim, "a set is decided for table %u", sim->set.table);
        return;
    }
    sim_trace(sim, "%s: %s is %g from step %llu on", t->spec.name,
              sim->set.index ? "momentum" : "lr", sim->set.value, (unsigned long long)from_step);
    t->set[t->nsets].index = sim->set.index;
    t->set[t->nsets].value = sim->set.value;
    t->set[t->nsets++].from_step = from_step;
    for (uint64_t k = 0; k < t->nslices && t->spec.consistency == PSRTI_SYNC; k++) {
        const sim_slice_t *s = &t->slice[k];
        if (s->life == sim->node[s->server].life && s->version > from_step)
            sim_fail(sim, "%s is set from step %llu, slice %llu is at version %llu already",
                     t->spec.name, (unsigned long long)from_step, (unsigned long long)k,
                     (unsigned long long)s->version);
    }
}

void sim_set_sent(sim_t *sim, const Psrt__Control *msg)
{
    if (msg->body_case == PSRT__CONTROL__BODY_SET_PREPARE) {
        sim->set.number = msg->set_prepare->number;
        sim->set.table = msg->set_prepare->table;
        sim->set.index = index_of(msg->set_prepare->key);
        sim->set.value = msg->set_prepare->value;
        sim->set.decided = 0;
    } else if (msg->body_case == PSRT__CONTROL__BODY_SET_END && msg->set_end->commit) {
        if (sim->set.number != msg->set_end->number)
            sim_fail(sim, "a set is decided that was not prepared");
        else if (!sim->set.decided)
            write_down(sim, msg->set_end->from_step);
        sim->set.decided = 1;
    }
}

void sim_set_end(sim_server_t *server, uint64_t number, int commit, uint64_t from_step)
{
    sim_t *sim = server->sim;
    psrti_shard_set_end(server->shard, number, commit, from_step);
    sim_table_t *t = commit && number == sim->set.number ? by_id(sim, sim->set.table) : NULL;
    for (uint64_t k = 0; t && k < t->nslices; k++)
        if (t->slice[k].server == server->index)
            t->slice[k].params[sim->set.index] = sim->set.value;
}

void sim_set_done(sim_t *sim, psrt_status_t status, const char *text)
{
    sim_trace(sim, "a set ends: %s %s", psrt_status_name(status), text);
    if (status == PSRT_OK)
        sim->counts.sets++;
    else if (status == PSRT_ERR_TOO_LATE)
        sim->counts.sets_too_late++;
    else if (status == PSRT_ERR_INVALID || status == PSRT_ERR_SHARD_LOST)
        sim->counts.sets_refused++;
    else
        sim_fail(sim, "a set ended with %s: %s", psrt_status_name(status), text);
}

void sim_set_some(sim_worker_t *w, sim_table_t *t)
{
    static const double rates[] = { 0.25, 0.5, 1 };
    sim_t *sim = w->sim;
    const char *key = t->optimizer == SIM_MOMENTUM && sim_chance(sim, 50) ? "momentum" : "lr";
    double value = *key == 'l' ? rates[sim_random(sim, 3)] : rates[sim_random(sim, 2)];
    uint64_t next = psrti_ctable_next_step(w->table[t->index]), from = PSRT_STEP_NEXT;
    if (sim_chance(sim, 10)) value = -1;
    if (t->spec.consistency == PSRTI_SYNC && sim_chance(sim, 60)) {
        from = next + sim_random(sim, 5);
        from -= PSRTI_MIN(from, 2);
    }
    sim_control_set(w, psrti_ctable_id(w->table[t->index]), key, value, from);
}
