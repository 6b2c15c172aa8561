/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/fuse_rig.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { IDLE, SUBMITTED, BEGUN, ENDED };

typedef struct fr_note {
    struct fr_note *next;
    size_t len;
    uint8_t data[];
} note_t;

uint32_t fr_random(fr_rig_t *rig, uint32_t below)
{
    rig->random = rig->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((rig->random >> 33) % below);
}

/* ---- what a core wants ------------------------------------------------------------------------- */

static void send_note(fr_rig_t *rig, uint32_t from, const void *data, size_t len)
{
    for (uint32_t to = 0; to < rig->n; to++) {
        if (to == from) continue;
        note_t *note = malloc(sizeof *note + len);
        cr_assert(note != NULL);
        note->next = NULL;
        note->len = len;
        memcpy(note->data, data, len);
        if (rig->last[from][to])
            rig->last[from][to]->next = note;
        else
            rig->first[from][to] = note;
        rig->last[from][to] = note;
    }
}

/* "b:10f32sum ", as all ranks must have it. */
static char *text_of(const psrti_fuse_bucket_t *b)
{
    static char text[FR_TENSORS * 64];
    size_t pos = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const psrti_fuse_slot_t *s = &b->slots[i];
        cr_assert(s->sig.dtype == b->dtype && s->sig.redop == b->redop);
        cr_assert_str_eq(psrti_fuse_name(s->item), psrti_fuse_name(b->slots[i].item));
        psrti_append(text, sizeof text, &pos, "%s:%llu:%u:%u@%llu ", psrti_fuse_name(s->item),
                     (unsigned long long)s->item->sig.count, s->item->sig.dtype, s->item->sig.redop,
                     (unsigned long long)s->offset);
    }
    return text;
}

static void begin(fr_rig_t *rig, uint32_t r, psrti_fuse_bucket_t *b)
{
    fr_rank_t *rank = &rig->rank[r];
    const char *text = text_of(b);
    uint64_t number = rank->begun++;
    cr_assert(number < 4096);
    cr_assert(b->count == 1 || b->bytes <= rig->bucket, "a bucket of %llu bytes",
              (unsigned long long)b->bytes);
    if (!rig->sent[number]) rig->sent[number] = strdup(text);
    cr_assert_str_eq(rig->sent[number], text, "bucket %llu of rank %u is %s, others have %s",
                     (unsigned long long)number, r, text, rig->sent[number]);
    rig->begun_by[number]++;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t t = (uint32_t)(b->slots[i].item - rank->items);
        cr_assert_eq(rank->state[t], SUBMITTED);
        rank->state[t] = BEGUN;
    }
    rank->running[rank->nrunning++] = (fr_bucket_t){ b, number };
}

static void fail_all(fr_rig_t *rig, psrt_status_t status, const char *text)
{
    for (uint32_t r = 0; r < rig->n; r++) {
        fr_rank_t *rank = &rig->rank[r];
        if (rank->status) continue;
        rank->status = status;
        snprintf(rank->text, sizeof rank->text, "%s", text);
    }
}

static void pump(fr_rig_t *rig, uint32_t r)
{
    fr_rank_t *rank = &rig->rank[r];
    psrti_fuse_act_t act;
    for (;;) {
        psrti_fuse_next(rank->fuse, rig->now, &act);
        switch (act.what) {
        case PSRTI_FUSE_NOTHING: rank->timer = act.timer; return;
        case PSRTI_FUSE_BEGIN: begin(rig, r, act.bucket); break;
        case PSRTI_FUSE_NOTE: send_note(rig, r, act.data, act.len); break;
        case PSRTI_FUSE_FAIL:
            /* A mismatch every rank finds for itself, from the same words. */
            if (act.status == PSRT_ERR_MISMATCH && rig->n > 1 && !rank->status) {
                rank->status = act.status;
                snprintf(rank->text, sizeof rank->text, "%s", act.text);
            } else {
                fail_all(rig, act.status, act.text);
            }
            return;
        }
    }
}

/* ---- what happens ------------------------------------------------------------------------------ */

static void begin_step(fr_rig_t *rig, uint32_t r)
{
    fr_rank_t *rank = &rig->rank[r];
    psrti_fuse_sig_t sig;
    rank->count = rank->next = 0;
    if (rank->step < 64) rank->rounds_at[rank->step] = psrti_fuse_counts(rank->fuse).rounds;
    for (uint32_t t = 0; t < rig->tensors; t++) {
        rank->state[t] = IDLE;
        if (rank->step < rig->steps && rig->program(rig, r, rank->step, t, &sig))
            rank->order[rank->count++] = t;
    }
    for (uint32_t i = rank->count; i > 1; i--) {
        uint32_t k = fr_random(rig, i), other = rank->order[k];
        rank->order[k] = rank->order[i - 1];
        rank->order[i - 1] = other;
    }
}

static int submit(fr_rig_t *rig, uint32_t r)
{
    fr_rank_t *rank = &rig->rank[r];
    psrti_fuse_sig_t sig;
    uint64_t offset = 0;
    char name[16];
    if (rank->status || rank->next == rank->count || rig->now < rank->may_go) return 0;
    if (rank->next == rank->count / 2) rank->may_go = rig->now + rig->pause;
    uint32_t t = rank->order[rank->next++];
    (void)rig->program(rig, r, rank->step, t, &sig);
    snprintf(name, sizeof name, "t%u", t);
    cr_assert_eq(psrti_fuse_submit(rank->fuse, &rank->items[t], name, sig, rig->now, &offset),
                 PSRT_OK);
    rank->state[t] = SUBMITTED;
    (void)psrti_fuse_ready(rank->fuse, &rank->items[t]);
    if (rank->next == rank->count && rig->flush) psrti_fuse_flush(rank->fuse);
    return 1;
}

/* A bucket that all have begun ends on one of them. */
static int end_bucket(fr_rig_t *rig, uint32_t r)
{
    fr_rank_t *rank = &rig->rank[r];
    if (rank->status || !rank->nrunning) return 0;
    uint32_t i = fr_random(rig, rank->nrunning);
    fr_bucket_t b = rank->running[i];
    if (rig->begun_by[b.number] < rig->n) return 0;
    rank->running[i] = rank->running[--rank->nrunning];
    for (uint32_t k = 0; k < b.bucket->count; k++) {
        psrti_fuse_item_t *item = b.bucket->slots[k].item;
        rank->state[item - rank->items] = ENDED;
        psrti_fuse_ended(rank->fuse, item, rig->now);
    }
    psrti_fuse_put(rank->fuse, b.bucket);
    return 1;
}

static int deliver(fr_rig_t *rig, uint32_t from, uint32_t to)
{
    note_t *note = rig->first[from][to];
    if (!note) return 0;
    rig->first[from][to] = note->next;
    if (!note->next) rig->last[from][to] = NULL;
    cr_assert(psrti_fuse_note(rig->rank[to].fuse, from, note->data, note->len));
    free(note);
    return 1;
}

static int end_step(fr_rig_t *rig, uint32_t r)
{
    fr_rank_t *rank = &rig->rank[r];
    if (rank->status || rank->step == rig->steps || rank->next < rank->count) return 0;
    for (uint32_t i = 0; i < rank->count; i++)
        if (rank->state[rank->order[i]] != ENDED) return 0;
    rank->step++;
    begin_step(rig, r);
    return 1;
}

static int is_over(const fr_rig_t *rig)
{
    for (uint32_t r = 0; r < rig->n; r++)
        if (!rig->rank[r].status && rig->rank[r].step < rig->steps) return 0;
    return 1;
}

static int one_event(fr_rig_t *rig)
{
    uint32_t r = fr_random(rig, rig->n), what = fr_random(rig, 4);
    int did = what == 0   ? submit(rig, r)
              : what == 1 ? end_bucket(rig, r)
              : what == 2 ? deliver(rig, fr_random(rig, rig->n), r)
                          : end_step(rig, r);
    if (!did) return 0;
    rig->now += fr_random(rig, 20000);
    if (!rig->rank[r].status) pump(rig, r);
    return 1;
}

/* Nothing happens any more until somebody's time has come. */
static void let_time_pass(fr_rig_t *rig)
{
    uint64_t t = UINT64_MAX;
    for (uint32_t r = 0; r < rig->n; r++)
        if (!rig->rank[r].status) {
            t = PSRTI_MIN(t, rig->rank[r].timer);
            if (rig->rank[r].may_go > rig->now) t = PSRTI_MIN(t, rig->rank[r].may_go);
        }
    cr_assert(t != UINT64_MAX, "all wait for one another at %llu ns", (unsigned long long)rig->now);
    rig->now = PSRTI_MAX(rig->now, t);
    for (uint32_t r = 0; r < rig->n; r++)
        if (!rig->rank[r].status && rig->rank[r].timer <= rig->now) pump(rig, r);
}

void fr_run(fr_rig_t *rig, uint64_t seed)
{
    rig->random = seed * 77 + rig->n;
    rig->now = FR_MS;
    for (uint32_t r = 0; r < rig->n; r++) {
        psrti_fuse_params_t p = { .rank = r,
                                  .size = rig->n,
                                  .alone = rig->alone ? rig->alone : UINT64_MAX,
                                  .bucket = rig->bucket,
                                  .cycle = 5 * FR_MS,
                                  .stall = 1000 * FR_MS,
                                  .timeout = rig->timeout ? rig->timeout : 100000 * FR_MS };
        cr_assert_eq(psrti_fuse_create(&p, &rig->rank[r].fuse), PSRT_OK);
        rig->rank[r].timer = UINT64_MAX;
        begin_step(rig, r);
    }
    for (unsigned idle = 0; !is_over(rig);) {
        idle = one_event(rig) ? 0 : idle + 1;
        if (idle < 400 * rig->n) continue;
        let_time_pass(rig);
        idle = 0;
    }
}

void fr_close(fr_rig_t *rig)
{
    for (uint32_t r = 0; r < rig->n; r++) {
        fr_rank_t *rank = &rig->rank[r];
        psrti_fuse_item_t *item;
        psrti_fuse_end(rank->fuse);
        while ((item = psrti_fuse_waiting(rank->fuse)))
            psrti_fuse_ended(rank->fuse, item, rig->now);
        while (rank->nrunning)
            psrti_fuse_put(rank->fuse, rank->running[--rank->nrunning].bucket);
        psrti_fuse_destroy(rank->fuse);
        for (uint32_t to = 0; to < rig->n; to++)
            for (note_t *note; (note = rig->first[r][to]) != NULL; free(note))
                rig->first[r][to] = note->next;
    }
    for (uint32_t i = 0; i < 4096; i++)
        free(rig->sent[i]);
}
