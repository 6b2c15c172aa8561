/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a round: what each member says to all others, in notes.
 *
 * A note is a kind, the round, the length of the word, where this piece begins, and the piece; all little endian. A
 * word is the number of buckets begun, the bytes of a bucket, those of a tensor that goes alone, why the member waits for nothing more, the number of
 * tensors that wait there, and of each the count, type, reduction, length of the name, name. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "runtime/coll/fuse_int.h"

typedef psrti_fuse_t fuse_t;
typedef psrti_fuse_word_t word_t;

enum { KIND_PIECE = 1, KIND_LEAVE = 2 };
#define HEAD 13
#define WORD_HEAD 29
#define ENTRY_HEAD 11
#define WORD_MAX (64u << 20)

const uint8_t psrti_fuse_leave[1] = { KIND_LEAVE };

/* ---- the own word ------------------------------------------------------------------------------ */

static size_t word_size(const fuse_t *f)
{
    size_t n = WORD_HEAD;
    for (psrti_list_t *it = f->waiting.next; it != &f->waiting; it = it->next)
        n += ENTRY_HEAD + strlen(PSRTI_LIST_ENTRY(it, psrti_fuse_item_t, node)->tensor->name);
    return n;
}

static uint8_t *put_entry(uint8_t *to, const psrti_fuse_item_t *item)
{
    size_t len = strlen(item->tensor->name);
    psrti_put64(to, item->sig.count);
    to[8] = item->sig.dtype;
    to[9] = item->sig.redop;
    to[10] = (uint8_t)len;
    memcpy(to + ENTRY_HEAD, item->tensor->name, len);
    return to + ENTRY_HEAD + len;
}

int psrti_fuse_give_word(fuse_t *f)
{
    word_t *w = &f->words[0][f->p.rank];
    size_t size = word_size(f);
    w->bytes = size <= WORD_MAX ? malloc(size) : NULL;
    if (!w->bytes) return 0;
    psrti_put64(w->bytes, f->begun);
    psrti_put64(w->bytes + 8, f->p.bucket);
    psrti_put64(w->bytes + 16, f->p.alone);
    w->bytes[24] = (uint8_t)f->stalled;
    psrti_put32(w->bytes + 25, f->nwaiting);
    uint8_t *to = w->bytes + WORD_HEAD;
    for (psrti_list_t *it = f->waiting.next; it != &f->waiting; it = it->next)
        to = put_entry(to, PSRTI_LIST_ENTRY(it, psrti_fuse_item_t, node));
    w->total = w->have = (uint32_t)size;
    w->is_whole = 1;
    f->given = 1;
    f->sent = 0;
    return 1;
}

size_t psrti_fuse_next_piece(fuse_t *f)
{
    const word_t *w = &f->words[0][f->p.rank];
    if (!f->given || f->sent == w->total || f->p.size == 1) return 0;
    uint32_t n = PSRTI_MIN(w->total - f->sent, (uint32_t)(PSRTI_FUSE_PIECE - HEAD));
    f->piece[0] = KIND_PIECE;
    psrti_put32(f->piece + 1, f->round);
    psrti_put32(f->piece + 5, w->total);
    psrti_put32(f->piece + 9, f->sent);
    memcpy(f->piece + HEAD, w->bytes + f->sent, n);
    f->sent += n;
    return HEAD + n;
}

/* ---- those of others --------------------------------------------------------------------------- */

static int take_piece(fuse_t *f, uint32_t member, const uint8_t *data, size_t len)
{
    uint32_t ahead = psrti_get32(data + 1) - f->round, total = psrti_get32(data + 5);
    if (ahead > 1 || total < WORD_HEAD || total > WORD_MAX) return 0;
    word_t *w = &f->words[ahead][member];
    if (!w->bytes) {
        w->bytes = malloc(total);
        w->total = total;
    }
    if (!w->bytes) {
        psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for what rank %u submitted", member);
        return 1;
    }
    size_t n = len - HEAD;
    if (w->total != total || psrti_get32(data + 9) != w->have || n == 0 || n > total - w->have)
        return 0;
    memcpy(w->bytes + w->have, data + HEAD, n);
    w->have += (uint32_t)n;
    w->is_whole = w->have == total;
    if (!ahead) f->heard = 1;
    return 1;
}

int psrti_fuse_note(fuse_t *f, uint32_t member, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    if (len == 0 || member >= f->p.size || member == f->p.rank) return 0;
    if (f->over) return 1;
    if (bytes[0] == KIND_LEAVE && len == 1) {
        if (!f->left) f->left = member + 1u;
        return 1;
    }
    return bytes[0] == KIND_PIECE && len > HEAD && len <= PSRTI_FUSE_PIECE &&
           take_piece(f, member, bytes, len);
}

int psrti_fuse_all_words(const fuse_t *f)
{
    for (uint32_t r = 0; r < f->p.size; r++)
        if (!f->words[0][r].is_whole) return 0;
    return 1;
}

static int known_sig(psrti_fuse_sig_t sig)
{
    size_t width = psrt_dtype_size((psrt_dtype_t)sig.dtype);
    return width && sig.redop <= PSRT_AVG && sig.count <= INT64_MAX / width;
}

/* Reads one entry; the bytes that it has, 0: it makes no sense, or (then the fusion failed) no memory. */
static size_t read_entry(fuse_t *f, const uint8_t *at, size_t left, psrti_fuse_entry_t *e)
{
    if (left < ENTRY_HEAD || left - ENTRY_HEAD < at[10] || at[10] == 0) return 0;
    *e = (psrti_fuse_entry_t){ .sig = { psrti_get64(at), at[8], at[9] } };
    if (!known_sig(e->sig) || memchr(at + ENTRY_HEAD, 0, at[10])) return 0;
    e->tensor = psrti_fuse_tensor(f, (const char *)at + ENTRY_HEAD, at[10]);
    if (!e->tensor) psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for a tensor");
    return e->tensor ? ENTRY_HEAD + (size_t)at[10] : 0;
}

static int same_param(fuse_t *f, uint32_t rank, const char *name, uint64_t theirs, uint64_t own)
{
    int is_lower = rank < f->p.rank;
    if (theirs == own) return 1;
    psrti_fuse_fail(f, PSRT_ERR_MISMATCH, "%s is %llu on rank %u and %llu on rank %u", name,
                    (unsigned long long)(is_lower ? theirs : own), PSRTI_MIN(rank, f->p.rank),
                    (unsigned long long)(is_lower ? own : theirs), PSRTI_MAX(rank, f->p.rank));
    return 0;
}

static int read_word(fuse_t *f, uint32_t rank)
{
    word_t *w = &f->words[0][rank];
    uint32_t count = psrti_get32(w->bytes + 25), at = WORD_HEAD;
    if (!same_param(f, rank, "bucket_bytes", psrti_get64(w->bytes + 8), f->p.bucket) ||
        !same_param(f, rank, "alone_bytes", psrti_get64(w->bytes + 16), f->p.alone))
        return 0;
    w->begun = psrti_get64(w->bytes);
    w->stalled = w->bytes[24];
    if (count > w->total / ENTRY_HEAD) return 0;
    w->entries = calloc(count ? count : 1, sizeof *w->entries);
    if (!w->entries) {
        psrti_fuse_fail(f, PSRT_ERR_NO_MEMORY, "out of memory for what rank %u submitted", rank);
        return 0;
    }
    for (; w->count < count; w->count++) {
        size_t n = read_entry(f, w->bytes + at, w->total - at, &w->entries[w->count]);
        if (!n) return 0;
        at += (uint32_t)n;
    }
    return at == w->total;
}

int psrti_fuse_read_words(fuse_t *f)
{
    for (uint32_t r = 0; r < f->p.size; r++) {
        if (read_word(f, r)) continue;
        psrti_fuse_fail(f, PSRT_ERR_PEER_LOST, "rank %u sent a list that makes no sense", r);
        return 0;
    }
    return 1;
}

/* The next round's words move up. */
void psrti_fuse_words_done(fuse_t *f)
{
    word_t *done = f->words[0];
    f->heard = 0;
    for (uint32_t r = 0; r < f->p.size; r++) {
        free(done[r].bytes);
        free(done[r].entries);
        done[r] = (word_t){ NULL };
        if (f->words[1][r].have) f->heard = 1;
    }
    f->words[0] = f->words[1];
    f->words[1] = done;
    f->round++;
    f->given = 0;
}
