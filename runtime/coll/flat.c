/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/flat.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fence.h"
#include "base/stage.h"
#include "base/util.h"
#include "kernels/reduce.h"

/* ---- layout ------------------------------------------------------------------------------------- */

#define FLAT_MAGIC 0x54414c46u /* "FLAT" */
#define FLAT_VERSION 3u
#define FLAT_INLINE 120u /* bytes that share the word's lines */

/* Processors fetch lines in pairs: what is written at different times is 128 bytes apart. */
typedef struct flat_slot {
    _Alignas(128) _Atomic uint64_t word;
    uint8_t inlined[FLAT_INLINE];
    uint8_t data[PSRTI_FLAT_DATA]; /* what is larger */
} flat_slot_t;

/* The sum of an allreduce of what does not fit into a slot: written by the first ones that find all that is given. */
typedef struct flat_sum {
    _Alignas(128) _Atomic uint64_t word; /* of the operation whose sum it is */
    _Alignas(128) uint8_t data[PSRTI_FLAT_WIDE];
} flat_sum_t;

typedef struct flat_segment {
    uint32_t magic, version, member, members;
    _Atomic uint32_t awaited; /* 1 + the member that the sleeping owner waits for; 0: it is awake */
    flat_slot_t slots[2];
    flat_sum_t sums[2];
    uint8_t lap[PSRTI_FLAT_LAP]; /* what does not fit into a slot */
} flat_segment_t;

_Static_assert(sizeof(flat_segment_t) == PSRTI_FLAT_BYTES, "layout of a segment");
_Static_assert(offsetof(flat_slot_t, data) == 128, "data of a slot are whole lines");
/* An operation that begins the lap anew does not reach the one before it. */
_Static_assert(PSRTI_FLAT_LAP >= 3 * PSRTI_FLAT_WIDE, "three of the largest");

#define AWAITED_WORD 0x100u /* in `awaited`: it sleeps on that member's word */

/* The word: number (32 bits) | count (18) | root (3) | redop (3) | dtype (4) | collective (4). */
#define WORD_SEQ_SHIFT 32
#define WORD_COUNT_SHIFT 14
#define WORD_ROOT_SHIFT 11
#define WORD_REDOP_SHIFT 8
#define WORD_DTYPE_SHIFT 4
#define COUNT_MAX ((1u << 18) - 1)

_Static_assert(PSRTI_FLAT_WIDE / 4 <= COUNT_MAX && PSRTI_FLAT_MEMBERS <= 1u << 3 &&
                   PSRTI_COLL_BARRIER < 1 << 4 && PSRT_U8 < 1 << 4 && PSRT_AVG < 1 << 3,
               "fields of the word");

uint32_t psrti_flat_pack(const psrti_coll_call_t *call)
{
    return (uint32_t)call->count << WORD_COUNT_SHIFT | call->root << WORD_ROOT_SHIFT |
           (uint32_t)call->redop << WORD_REDOP_SHIFT | (uint32_t)call->dtype << WORD_DTYPE_SHIFT |
           call->what;
}

static uint64_t word_of(uint32_t seq, const psrti_coll_call_t *call)
{
    return (uint64_t)seq << WORD_SEQ_SHIFT | psrti_flat_pack(call);
}

static uint32_t seq_of(uint64_t word) { return (uint32_t)(word >> WORD_SEQ_SHIFT); }

psrti_coll_call_t psrti_flat_unpack(uint32_t packed)
{
    return (psrti_coll_call_t){ .what = packed & 15,
                                .dtype = packed >> WORD_DTYPE_SHIFT & 15,
                                .redop = packed >> WORD_REDOP_SHIFT & 7,
                                .root = packed >> WORD_ROOT_SHIFT & 7,
                                .count = packed >> WORD_COUNT_SHIFT };
}

static psrti_coll_call_t call_of(uint64_t word) { return psrti_flat_unpack((uint32_t)word); }

/* ---- who gives, who takes ------------------------------------------------------------------------ */

enum { NOBODY = 0, ROOT = 1, OTHERS = 2, ALL = ROOT | OTHERS };

/* Who writes data into its slot and who reads those of others (of the writers; in a barrier of all); and whether
 * a contribution has a block for each member. */
static const struct roles {
    uint8_t give, take, many;
} roles[] = {
    [PSRTI_COLL_ALLREDUCE] = { ALL, ALL, 0 },      [PSRTI_COLL_REDUCE] = { OTHERS, ROOT, 0 },
    [PSRTI_COLL_BROADCAST] = { ROOT, OTHERS, 0 },  [PSRTI_COLL_ALLGATHER] = { ALL, ALL, 0 },
    [PSRTI_COLL_REDUCE_SCATTER] = { ALL, ALL, 1 }, [PSRTI_COLL_ALLTOALL] = { ALL, ALL, 1 },
    [PSRTI_COLL_GATHER] = { OTHERS, ROOT, 0 },     [PSRTI_COLL_SCATTER] = { ROOT, OTHERS, 1 },
    [PSRTI_COLL_BARRIER] = { NOBODY, ALL, 0 },
};

static uint64_t given_bytes(uint32_t members, const psrti_coll_call_t *call)
{
    return call->count * psrt_dtype_size((psrt_dtype_t)call->dtype) *
           (roles[call->what].many ? members : 1);
}

int psrti_flat_fits(uint32_t members, uint32_t bytes, const psrti_coll_call_t *call)
{
    if (members > PSRTI_FLAT_MEMBERS || call->what >= PSRTI_COUNT(roles)) return 0;
    return call->count <= COUNT_MAX && given_bytes(members, call) <= bytes;
}

/* ---- state -------------------------------------------------------------------------------------- */

struct psrti_flat {
    /* The operation that runs, or ran last. */
    psrti_coll_call_t call;
    uint64_t word;   /* what the others are to show                                  */
    uint32_t part;   /* bytes of a block                                             */
    uint32_t needed; /* members whose word it waits for                              */
    psrti_flat_state_t state;
    uint32_t lap;      /* where in the laps the next data begin that do not fit into a slot */
    uint32_t place;    /* where those of this operation begin, if `wide`                */
    uint8_t wide;      /* the data are in the laps                                     */
    uint8_t published; /* the own word is in the slot                                  */
    uint8_t unchecked; /* and it is not known yet who sleeps for it                    */

    uint64_t last_word; /* of the operation before                                      */
    uint32_t unseen;    /* who has not shown `word`; not yet published: `last_word`     */

    uint32_t member, members, others;
    const psrti_kernels_t *kernels;
    flat_segment_t *own;
    psrti_stage_t stage; /* of copies into the own lap */
    const flat_segment_t *segments[PSRTI_FLAT_MEMBERS];

    uint32_t culprit;
    uint64_t culprit_word, own_word; /* the two that differ */
};

void psrti_flat_format(void *segment, uint32_t member, uint32_t members)
{
    flat_segment_t *s = memset(segment, 0, offsetof(flat_segment_t, sums));

    for (unsigned i = 0; i < 2; i++)
        atomic_init(&s->sums[i].word, 0);
    s->magic = FLAT_MAGIC;
    s->version = FLAT_VERSION;
    s->member = member;
    s->members = members;
    atomic_init(&s->slots[1].word, (uint64_t)UINT32_MAX << WORD_SEQ_SHIFT);
}

psrt_status_t psrti_flat_create(const psrti_kernels_t *kernels, uint32_t member, uint32_t members,
                                void *const *segments, psrti_flat_t **flat_p)
{
    if (!members || members > PSRTI_FLAT_MEMBERS || member >= members) return PSRT_ERR_INVALID;
    for (uint32_t i = 0; i < members; i++) {
        const flat_segment_t *s = segments[i];
        if (s->magic != FLAT_MAGIC || s->version != FLAT_VERSION || s->member != i ||
            s->members != members)
            return PSRT_ERR_PROTOCOL;
    }
    psrti_flat_t *flat = calloc(1, sizeof *flat);
    if (!flat) return PSRT_ERR_NO_MEMORY;
    flat->state = PSRTI_FLAT_DONE;
    flat->kernels = kernels;
    flat->member = member;
    flat->members = members;
    flat->others = ((1u << members) - 1) & ~(1u << member);
    flat->own = segments[member];
    for (uint32_t i = 0; i < members; i++)
        flat->segments[i] = segments[i];
    *flat_p = flat;
    return PSRT_OK;
}

void psrti_flat_free(psrti_flat_t *flat) { free(flat); }

/* ---- looking ------------------------------------------------------------------------------------ */

static int is_call(const psrti_flat_t *flat, uint64_t word)
{
    psrti_coll_call_t call = call_of(word);
    return call.what < PSRTI_COUNT(roles) && call.dtype <= PSRT_U8 && call.redop <= PSRT_AVG &&
           call.root < flat->members;
}

static void differs(psrti_flat_t *flat, uint32_t member, uint64_t theirs, uint64_t ours)
{
    int mismatch = seq_of(theirs) == seq_of(ours) && is_call(flat, theirs);

    flat->state = mismatch ? PSRTI_FLAT_MISMATCH : PSRTI_FLAT_BROKEN;
    flat->culprit = member;
    flat->culprit_word = theirs;
    flat->own_word = ours;
}

/* Those of `mask` that do not show this word yet. */
static uint32_t look(psrti_flat_t *flat, uint32_t mask, uint64_t word)
{
    unsigned slot = seq_of(word) % 2;

    for (uint32_t left = mask; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        uint64_t theirs =
            atomic_load_explicit(&flat->segments[i]->slots[slot].word, memory_order_acquire);
        if (theirs == word)
            mask &= ~(1u << i);
        else if (seq_of(theirs) != seq_of(word) - 2)
            differs(flat, i, theirs, word);
    }
    return mask;
}

/* ---- data --------------------------------------------------------------------------------------- */

static uint32_t given_here(const psrti_flat_t *flat)
{
    return (uint32_t)given_bytes(flat->members, &flat->call);
}

static const void *place_in(const psrti_flat_t *flat, const flat_segment_t *s)
{
    const flat_slot_t *slot = &s->slots[seq_of(flat->word) % 2];
    if (flat->wide) return s->lap + flat->place;
    return given_here(flat) > FLAT_INLINE ? slot->data : slot->inlined;
}

/* Block b of what member i gave. */
static const void *given(const psrti_flat_t *flat, uint32_t i, uint32_t b)
{
    const void *all = i == flat->member ? flat->call.in : place_in(flat, flat->segments[i]);
    return (const uint8_t *)all + (size_t)b * flat->part;
}

static void take(const psrti_flat_t *flat, uint32_t to, uint32_t i, uint32_t b)
{
    uint8_t *dst = (uint8_t *)flat->call.out + (size_t)to * flat->part;
    const void *src = given(flat, i, b);

    if (dst != src && flat->part) memcpy(dst, src, flat->part);
}

static void reduce(const psrti_flat_t *flat, uint32_t b, void *out)
{
    const psrti_coll_call_t *call = &flat->call;
    const void *src[PSRTI_FLAT_MEMBERS];

    for (uint32_t i = 0; i < flat->members; i++)
        src[i] = given(flat, i, b);
    psrti_reduce(flat->kernels, (psrt_dtype_t)call->dtype, (psrt_redop_t)call->redop, out, src,
                 flat->members, call->count, flat->members);
}

/* NULL: nobody has it yet. */
static const void *find_sum(const psrti_flat_t *flat, unsigned slot)
{
    for (uint32_t left = flat->others; left; left &= left - 1) {
        const flat_sum_t *sum = &flat->segments[__builtin_ctz(left)]->sums[slot];
        if (atomic_load_explicit(&sum->word, memory_order_acquire) == flat->word) return sum->data;
    }
    return NULL;
}

/* Members take turns on the cores: who comes after the first one finds the sum. */
static void reduce_for_all(const psrti_flat_t *flat)
{
    unsigned slot = seq_of(flat->word) % 2;
    flat_sum_t *own = &flat->own->sums[slot];
    const void *sum = find_sum(flat, slot);

    if (!sum) {
        reduce(flat, 0, own->data);
        atomic_store_explicit(&own->word, flat->word, memory_order_release);
        sum = own->data;
    }
    memcpy(flat->call.out, sum, flat->part);
}

static void finish(psrti_flat_t *flat)
{
    uint32_t own = flat->member, root = flat->call.root;

    switch ((psrti_collective_t)flat->call.what) {
    case PSRTI_COLL_ALLREDUCE:
        if (flat->wide && flat->members > 2)
            reduce_for_all(flat);
        else
            reduce(flat, 0, flat->call.out);
        break;
    case PSRTI_COLL_REDUCE:
        if (own == root) reduce(flat, 0, flat->call.out);
        break;
    case PSRTI_COLL_REDUCE_SCATTER: reduce(flat, own, flat->call.out); break;
    case PSRTI_COLL_BROADCAST:
        if (flat->call.out) take(flat, 0, root, 0);
        break;
    case PSRTI_COLL_SCATTER:
        if (flat->call.out) take(flat, 0, root, own);
        break;
    case PSRTI_COLL_GATHER:
        if (own != root) break;
        /* fall through */
    case PSRTI_COLL_ALLGATHER:
        for (uint32_t i = 0; i < flat->members; i++)
            take(flat, i, i, 0);
        break;
    case PSRTI_COLL_ALLTOALL:
        for (uint32_t i = 0; i < flat->members; i++)
            take(flat, i, i, own);
        break;
    default: break;
    }
    flat->state = PSRTI_FLAT_DONE;
}

/* ---- operations --------------------------------------------------------------------------------- */

static void give(psrti_flat_t *flat)
{
    flat_slot_t *slot = &flat->own->slots[seq_of(flat->word) % 2];
    uint32_t bytes = given_here(flat);

    if (flat->wide)
        psrti_stage_copy(&flat->stage, flat->own->lap + flat->place, flat->call.in, bytes);
    else
        memcpy(bytes > FLAT_INLINE ? slot->data : slot->inlined, flat->call.in, bytes);
}

static void publish(psrti_flat_t *flat)
{
    const psrti_coll_call_t *call = &flat->call;
    const struct roles *r = &roles[call->what];
    unsigned role = call->root == flat->member ? ROOT : OTHERS;

    if ((r->give & role) && flat->part) give(flat);
    atomic_store_explicit(&flat->own->slots[seq_of(flat->word) % 2].word, flat->word,
                          memory_order_release);
    flat->published = flat->unchecked = 1;
    flat->unseen = flat->others;
    flat->needed = 0;
    if (r->take & role) flat->needed = r->give == ROOT ? 1u << call->root : flat->others;
}

/* The same on all members, since all call the same. */
static void take_place(psrti_flat_t *flat)
{
    uint32_t bytes = (given_here(flat) + 127) / 128 * 128;

    flat->place = flat->lap + bytes > PSRTI_FLAT_LAP ? 0 : flat->lap;
    flat->lap = flat->place + bytes;
}

void psrti_flat_begin(psrti_flat_t *flat, const psrti_coll_call_t *call)
{
    if (flat->state != PSRTI_FLAT_DONE) return; /* failed */
    flat->call = *call;
    flat->last_word = flat->word;
    flat->word = word_of(seq_of(flat->word) + 1, call);
    flat->part = (uint32_t)(call->count * psrt_dtype_size((psrt_dtype_t)call->dtype));
    flat->wide = given_here(flat) > PSRTI_FLAT_DATA;
    if (flat->wide) take_place(flat);
    flat->state = PSRTI_FLAT_WAITING;
    flat->published = 0;
    if (!flat->unseen) publish(flat);
}

psrti_flat_state_t psrti_flat_poll(psrti_flat_t *flat)
{
    if (flat->state != PSRTI_FLAT_WAITING) return flat->state;
    if (!flat->published) {
        flat->unseen = look(flat, flat->unseen, flat->last_word);
        if (flat->unseen || flat->state != PSRTI_FLAT_WAITING) return flat->state;
        publish(flat);
    }
    uint32_t needed = look(flat, flat->needed, flat->word);
    flat->unseen &= ~(flat->needed & ~needed);
    flat->needed = needed;
    if (!needed && flat->state == PSRTI_FLAT_WAITING) finish(flat);
    return flat->state;
}

psrti_flat_state_t psrti_flat_spin(psrti_flat_t *flat, unsigned polls)
{
    psrti_flat_state_t state = PSRTI_FLAT_WAITING;

    while (polls-- && state == PSRTI_FLAT_WAITING)
        state = psrti_flat_poll(flat);
    return state;
}

/* ---- sleeping ----------------------------------------------------------------------------------- */

uint32_t psrti_flat_wakes(psrti_flat_t *flat)
{
    uint32_t wakes = 0;

    if (!flat->unchecked) return 0;
    flat->unchecked = 0;
    psrti_full_fence();
    for (uint32_t left = flat->others; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        uint32_t awaited = atomic_load_explicit(&flat->segments[i]->awaited, memory_order_relaxed);
        if (awaited == flat->member + 1) wakes |= 1u << i;
        if (awaited == (AWAITED_WORD | (flat->member + 1))) wakes |= 1u << flat->member;
    }
    return wakes;
}

uint32_t psrti_flat_missing(const psrti_flat_t *flat)
{
    if (flat->state != PSRTI_FLAT_WAITING) return 0;
    return flat->published ? flat->needed : flat->unseen;
}

void psrti_flat_awake(psrti_flat_t *flat)
{
    atomic_store_explicit(&flat->own->awaited, 0, memory_order_relaxed);
}

/* The half of a word that is its number. */
static const _Atomic uint32_t *number_of(const _Atomic uint64_t *word)
{
    return (const _Atomic uint32_t *)word + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
}

const _Atomic uint32_t *psrti_flat_word(const psrti_flat_t *flat)
{
    return number_of(&flat->own->slots[seq_of(flat->word) % 2].word);
}

/* The member that is named to wake the owner; -1: poll again. One at a time: of those that come while it sleeps only
 * one wakes it. */
static int want(psrti_flat_t *flat, uint32_t how)
{
    uint32_t missing = psrti_flat_missing(flat), awaited = 0;

    while (missing && !flat->unchecked && !(missing & awaited)) {
        awaited = missing & -missing;
        atomic_store_explicit(&flat->own->awaited, how | ((uint32_t)__builtin_ctz(awaited) + 1),
                              memory_order_relaxed);
        psrti_full_fence();
        psrti_flat_poll(flat);
        missing = psrti_flat_missing(flat);
    }
    if (missing && !flat->unchecked) return __builtin_ctz(awaited);
    psrti_flat_awake(flat);
    return -1;
}

int psrti_flat_want_wake(psrti_flat_t *flat) { return want(flat, 0) >= 0; }

const _Atomic uint32_t *psrti_flat_want_word(psrti_flat_t *flat, uint32_t *number_p)
{
    int member = want(flat, AWAITED_WORD);
    if (member < 0) return NULL;
    uint32_t seq = seq_of(flat->published ? flat->word : flat->last_word);
    *number_p = seq - 2;
    return number_of(&flat->segments[member]->slots[seq % 2].word);
}

uint32_t psrti_flat_culprit(const psrti_flat_t *flat, psrti_coll_call_t *theirs,
                            psrti_coll_call_t *ours)
{
    *theirs = call_of(flat->culprit_word);
    *ours = call_of(flat->own_word);
    return flat->culprit;
}
