/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: two real ranks, and a third that says what it likes, the same to both. Whatever that is, both begin the
 * same buckets in the same order, and everything that was submitted ends.
 *
 * Input, until its end: a byte, of which bits 0-3 choose what happens (`what`) and bit 4 the rank; behind it what
 * that needs. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "runtime/coll/fuse.h"

#define RANKS 2 /* real ones; the third is number 2 */
#define TENSORS 8
#define NOTES 256
#define BUCKETS 256
#define BUCKET 64
#define ALONE 48

typedef struct bucket_text {
    char text[TENSORS * 300];
} bucket_text_t;

typedef struct note {
    size_t len;
    uint8_t data[PSRTI_FUSE_PIECE];
} note_t;

typedef struct rank {
    psrti_fuse_t *fuse;
    psrti_fuse_item_t items[TENSORS];
    int busy[TENSORS];
    psrti_fuse_bucket_t *running[BUCKETS];
    unsigned nrunning, begun;
    note_t *notes[NOTES]; /* to the other */
    unsigned nnotes;
    int failed;
} rank_t;

static struct {
    rank_t rank[RANKS];
    char *bucket[BUCKETS]; /* what the first who began it had */
    uint64_t now;
    uint32_t round; /* of the third rank */
    int over;       /* it was caught, or there is too much */
} world;

static void name_of(unsigned tensor, char name[PSRTI_FUSE_NAME + 1])
{
    memset(name, 0, PSRTI_FUSE_NAME + 1);
    name[0] = (char)('a' + tensor);
    if (tensor == TENSORS - 1) memset(name, 'z', PSRTI_FUSE_NAME);
}

/* ---- what the cores want ----------------------------------------------------------------------------- */

static void note(rank_t *from, const void *data, size_t len)
{
    FUZZ_ASSERT(len <= PSRTI_FUSE_PIECE);
    if (from->nnotes == NOTES) {
        world.over = 1;
        return;
    }
    note_t *n = malloc(sizeof *n);
    FUZZ_ASSERT(n);
    n->len = len;
    memcpy(n->data, data, len);
    from->notes[from->nnotes++] = n;
}

static void begin(rank_t *r, psrti_fuse_bucket_t *b)
{
    char text[sizeof(bucket_text_t)];
    size_t pos = 0;
    text[0] = 0;
    FUZZ_ASSERT(b->count >= 1 && b->count <= TENSORS && (b->count == 1 || b->bytes <= BUCKET));
    for (uint32_t i = 0; i < b->count; i++) {
        const psrti_fuse_slot_t *s = &b->slots[i];
        FUZZ_ASSERT(r->busy[s->item - r->items] && s->sig.count == s->item->sig.count &&
                    s->sig.dtype == b->dtype && s->sig.redop == b->redop);
        psrti_append(text, sizeof text, &pos, "%s %llu %u %u ", psrti_fuse_name(s->item),
                     (unsigned long long)s->sig.count, s->sig.dtype, s->sig.redop);
    }
    if (r->begun == BUCKETS || r->nrunning == BUCKETS) {
        world.over = 1;
    } else {
        char **known = &world.bucket[r->begun++];
        if (!*known) *known = strdup(text);
        FUZZ_ASSERT(strcmp(*known, text) == 0);
    }
    if (!b->memory) b->memory = malloc(BUCKET);
    if (r->nrunning < BUCKETS)
        r->running[r->nrunning++] = b;
    else
        psrti_fuse_put(r->fuse, b);
}

static void pump(rank_t *r)
{
    psrti_fuse_act_t act;
    while (!r->failed && !world.over) {
        psrti_fuse_next(r->fuse, world.now, &act);
        if (act.what == PSRTI_FUSE_NOTHING) return;
        if (act.what == PSRTI_FUSE_BEGIN) begin(r, act.bucket);
        if (act.what == PSRTI_FUSE_NOTE) note(r, act.data, act.len);
        if (act.what != PSRTI_FUSE_FAIL) continue;
        FUZZ_ASSERT(act.status && *act.text);
        r->failed = 1;
    }
}

/* ---- what happens ------------------------------------------------------------------------------------- */

enum what { SUBMIT, FLUSH, DELIVER, WORD, RAW, TIME, END, LEAVE, GARBAGE };

static psrti_fuse_sig_t sig_of(fuzz_in_t *in)
{
    uint8_t byte = fuzz_u8(in);
    return (psrti_fuse_sig_t){ 1u + (byte & 15), byte >> 4 & 1 ? PSRT_F64 : PSRT_F32,
                               byte >> 5 & 1 ? PSRT_MAX : PSRT_SUM };
}

static void submit(fuzz_in_t *in, rank_t *r)
{
    char name[PSRTI_FUSE_NAME + 1], described[PSRTI_FUSE_TEXT];
    unsigned t = fuzz_u8(in) % TENSORS;
    psrti_fuse_sig_t sig = sig_of(in);
    uint64_t offset = 0;
    name_of(t, name);
    if (r->failed) return;
    psrti_fuse_item_t again = { 0 };
    psrti_fuse_item_t *item = r->busy[t] ? &again : &r->items[t];
    psrt_status_t rc = psrti_fuse_submit(r->fuse, item, name, sig, world.now, &offset);
    FUZZ_ASSERT(rc == (r->busy[t] ? PSRT_ERR_BUSY : PSRT_OK));
    if (rc) return;
    FUZZ_ASSERT(!item->copies_to || offset + sig.count * psrt_dtype_size((psrt_dtype_t)sig.dtype) <=
                                        item->copies_to->bytes);
    r->busy[t] = 1;
    (void)psrti_fuse_ready(r->fuse, item);
    psrti_fuse_describe(r->fuse, item, described, sizeof described);
}

static void deliver(rank_t *from)
{
    if (!from->nnotes) return;
    rank_t *to = &world.rank[from == &world.rank[0]];
    note_t *n = from->notes[0];
    memmove(from->notes, from->notes + 1, --from->nnotes * sizeof *from->notes);
    uint8_t *exact = malloc(n->len);
    memcpy(exact, n->data, n->len);
    FUZZ_ASSERT(to->failed ||
                psrti_fuse_note(to->fuse, (uint32_t)(from - world.rank), exact, n->len));
    free(exact);
    free(n);
}

/* To both; that one takes it and the other does not is possible, as they are in different rounds. */
static void from_third(const uint8_t *data, size_t len)
{
    for (int i = 0; i < RANKS; i++)
        if (!world.rank[i].failed && !psrti_fuse_note(world.rank[i].fuse, RANKS, data, len))
            world.over = 1;
}

static uint8_t *put_entry(uint8_t *to, fuzz_in_t *in)
{
    char name[PSRTI_FUSE_NAME + 1];
    psrti_fuse_sig_t sig;
    name_of(fuzz_u8(in) % TENSORS, name);
    sig = sig_of(in);
    size_t len = strlen(name);
    psrti_put64(to, sig.count);
    to[8] = sig.dtype;
    to[9] = sig.redop;
    to[10] = (uint8_t)len;
    memcpy(to + 11, name, len); /* NOLINT(bugprone-not-null-terminated-result) */
    return to + 11 + len;
}

/* A word of the third rank for its next round, well made, in pieces of a length that the input chooses. */
static void third_word(fuzz_in_t *in)
{
    uint8_t word[64 + 15 * 300], piece[PSRTI_FUSE_PIECE];
    uint8_t head = fuzz_u8(in), count = head & 15;
    size_t step = 1 + (size_t)fuzz_u8(in) * 4, at = 0;
    psrti_put64(word, fuzz_u8(in));
    psrti_put64(word + 8, BUCKET);
    psrti_put64(word + 16, ALONE);
    word[24] = head >> 4;
    psrti_put32(word + 25, count);
    uint8_t *to = word + 29;
    for (unsigned i = 0; i < count; i++)
        to = put_entry(to, in);
    for (size_t total = (size_t)(to - word); at < total && !world.over;) {
        size_t n = PSRTI_MIN(PSRTI_MIN(step, total - at), sizeof piece - 13);
        piece[0] = 1;
        psrti_put32(piece + 1, world.round);
        psrti_put32(piece + 5, (uint32_t)total);
        psrti_put32(piece + 9, (uint32_t)at);
        memcpy(piece + 13, word + at, n);
        from_third(piece, 13 + n);
        at += n;
    }
    world.round++;
}

static void raw(fuzz_in_t *in)
{
    size_t len = fuzz_u8(in);
    uint8_t *data = fuzz_bytes(in, len);
    from_third(data, len);
    free(data);
}

static void end_items(rank_t *r, psrti_fuse_bucket_t *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        psrti_fuse_item_t *item = b->slots[i].item;
        r->busy[item - r->items] = 0;
        psrti_fuse_ended(r->fuse, item, world.now);
    }
    psrti_fuse_put(r->fuse, b);
}

static void end_bucket(rank_t *r, unsigned which)
{
    if (!r->nrunning) return;
    psrti_fuse_bucket_t *b = r->running[which %= r->nrunning];
    r->running[which] = r->running[--r->nrunning];
    end_items(r, b);
}

static void take_garbage(rank_t *r)
{
    for (psrti_fuse_bucket_t *b; (b = psrti_fuse_garbage(r->fuse)) != NULL;) {
        free(b->memory);
        psrti_fuse_bucket_free(b);
    }
}

static void happen(fuzz_in_t *in)
{
    uint8_t byte = fuzz_u8(in);
    rank_t *r = &world.rank[byte >> 4 & 1];
    switch (byte & 15) {
    case SUBMIT: submit(in, r); break;
    case FLUSH: psrti_fuse_flush(r->fuse); break;
    case DELIVER: deliver(r); break;
    case WORD: third_word(in); break;
    case RAW: raw(in); break;
    case TIME: world.now += (uint64_t)fuzz_u16(in) * 10; break;
    case END: end_bucket(r, fuzz_u8(in)); break;
    case LEAVE: from_third(psrti_fuse_leave, 1); break;
    case GARBAGE: take_garbage(r); break;
    default: break;
    }
    for (int i = 0; i < RANKS; i++)
        pump(&world.rank[i]);
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static void open_rank(uint32_t i)
{
    psrti_fuse_params_t p = { .rank = i,
                              .size = RANKS + 1,
                              .alone = ALONE,
                              .bucket = BUCKET,
                              .cycle = 1000,
                              .stall = 50000,
                              .timeout = 1000000 };
    FUZZ_ASSERT(psrti_fuse_create(&p, &world.rank[i].fuse) == PSRT_OK);
}

static void close_rank(rank_t *r)
{
    psrti_fuse_item_t *item;
    psrti_fuse_end(r->fuse);
    while ((item = psrti_fuse_waiting(r->fuse))) {
        r->busy[item - r->items] = 0;
        psrti_fuse_ended(r->fuse, item, world.now);
    }
    while (r->nrunning)
        end_bucket(r, 0);
    take_garbage(r);
    for (unsigned t = 0; t < TENSORS; t++)
        FUZZ_ASSERT(!r->busy[t]);
    psrti_fuse_destroy(r->fuse);
    while (r->nnotes)
        free(r->notes[--r->nnotes]);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size)
{
    fuzz_in_t in = { input, input_size };
    memset(&world, 0, sizeof world);
    for (uint32_t i = 0; i < RANKS; i++)
        open_rank(i);
    while (in.left && !world.over)
        happen(&in);
    if (world.rank[0].begun && world.rank[1].begun && !world.over) fuzz_accept();
    for (int i = 0; i < RANKS; i++)
        close_rank(&world.rank[i]);
    for (unsigned i = 0; i < BUCKETS; i++)
        free(world.bucket[i]);
    return 0;
}

/* ---- seeds --------------------------------------------------------------------------------------------- */

static void put_submit(fuzz_out_t *out, unsigned rank, unsigned tensor, unsigned sig)
{
    fuzz_put8(out, SUBMIT | rank << 4);
    fuzz_put8(out, tensor);
    fuzz_put8(out, sig);
}

/* A round of three tensors, in which the third rank has them too. */
static void put_round(fuzz_out_t *out, unsigned begun)
{
    for (unsigned rank = 0; rank < RANKS; rank++)
        for (unsigned t = 0; t < 3; t++)
            put_submit(out, rank, t, 3 + t);
    fuzz_put8(out, TIME);
    fuzz_put16(out, 200);
    fuzz_put8(out, WORD);
    fuzz_put8(out, 3);
    fuzz_put8(out, 20);
    fuzz_put8(out, begun);
    for (unsigned t = 0; t < 3; t++) {
        fuzz_put8(out, t);
        fuzz_put8(out, 3 + t);
    }
    fuzz_put8(out, DELIVER);
    fuzz_put8(out, DELIVER | 16);
}

static void put_ends(fuzz_out_t *out)
{
    for (unsigned rank = 0; rank < RANKS; rank++) {
        fuzz_put8(out, END | rank << 4);
        fuzz_put8(out, 0);
    }
}

void fuzz_seeds(void)
{
    fuzz_out_t one = { .size = 0 }, two = { .size = 0 }, leaves = { .size = 0 };
    put_round(&one, 0);
    put_ends(&one);
    fuzz_seed("round", one.data, one.size);
    put_round(&two, 0);
    put_ends(&two);
    for (unsigned rank = 0; rank < RANKS; rank++)
        for (unsigned t = 0; t < 3; t++)
            put_submit(&two, rank, t, 3 + t);
    put_ends(&two);
    fuzz_put8(&two, GARBAGE);
    fuzz_seed("pass", two.data, two.size);
    put_submit(&leaves, 0, 1, 5);
    fuzz_put8(&leaves, LEAVE);
    fuzz_attack("leave", leaves.data, leaves.size);
}
