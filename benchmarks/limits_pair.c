/* SPDX-License-Identifier: Apache-2.0 */
#include "limits_pair.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "flags.h"
#include "stats.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE 4096u
#define HUGE_PAGE ((uint64_t)2 << 20)
#define ROUND_US 400.0
#define AHEAD 2 /* operations in flight */
#define PINGS 200
#define PATIENCE 500

static const uint64_t piece_bytes[] = { 64 << 10, 256 << 10, 1 << 20 };
#define PIECES (sizeof piece_bytes / sizeof *piece_bytes)

/* What one process tells the other, a line each. Numbers only grow. */
typedef struct lines {
    _Alignas(64) atomic_ullong posted; /* pieces that may be added, or pings  */
    _Alignas(64) atomic_ullong added;  /* pieces that were added, or answers  */
    _Alignas(64) atomic_ullong copied; /* pieces that were copied out         */
} lines_t;

typedef struct command {
    enum { PING, PASSES } kind;
    unsigned add;             /* kernel */
    uint64_t elements, piece; /* piece: elements */
    uint64_t base, count;     /* pieces, or pings, that follow number `base` */
} command_t;

struct limits_pair {
    pid_t pid;
    int pipe;
    lines_t *lines;
    float *grad, *value, *table;
    uint64_t room, elements; /* room: bytes of each of the three */
    uint64_t base;
    size_t rounds;
    double us[LIMIT_ROUNDS], ping_us[LIMIT_ROUNDS];
};

static void await(atomic_ullong *line, unsigned long long number)
{
    for (unsigned polls = 0; atomic_load_explicit(line, memory_order_acquire) < number;)
        if (++polls % PATIENCE == 0) sched_yield(); /* the other one may have no core */
}

static void tell(atomic_ullong *line, unsigned long long number)
{
    atomic_store_explicit(line, number, memory_order_release);
}

static uint64_t pieces_of(const command_t *c) { return (c->elements + c->piece - 1) / c->piece; }

static uint64_t length_of(const command_t *c, uint64_t at)
{
    return at + c->piece < c->elements ? c->piece : c->elements - at;
}

/* ---- the other process ------------------------------------------------------------------------- */

static void answer(const limits_pair_t *p, const command_t *c)
{
    for (uint64_t i = c->base + 1; i <= c->base + c->count; i++) {
        await(&p->lines->posted, i);
        tell(&p->lines->added, i);
    }
}

static void add(const limits_pair_t *p, const command_t *c)
{
    uint64_t pieces = pieces_of(c);
    for (uint64_t i = 0; i < c->count; i++) {
        uint64_t at = i % pieces * c->piece;
        await(&p->lines->posted, c->base + i + 1);
        if (i >= pieces) await(&p->lines->copied, c->base + i - pieces + 1);
        limits_adds[c->add](p->table + at, p->grad + at, length_of(c, at));
        tell(&p->lines->added, c->base + i + 1);
    }
}

static _Noreturn void serve(const limits_pair_t *p, int in, pid_t parent)
{
    command_t c;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(BENCH_FAILED);
    while (read(in, &c, sizeof c) == sizeof c)
        if (c.kind == PING)
            answer(p, &c);
        else
            add(p, &c);
    _exit(BENCH_OK);
}

/* ---- life ---------------------------------------------------------------------------------------- */

/* One mapping, so that the other process has it too; its pages come when they are touched. */
static int map(limits_pair_t *p, uint64_t max_bytes)
{
    p->room = (max_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint64_t bytes = HUGE_PAGE + 3 * p->room;
    char *base = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return bench_fail("two processes: mmap: %s", strerror(errno));
    base += HUGE_PAGE - (uintptr_t)base % HUGE_PAGE;
    p->lines = (void *)base;
    p->grad = (void *)(base + HUGE_PAGE);
    p->value = (void *)(base + HUGE_PAGE + p->room);
    p->table = (void *)(base + HUGE_PAGE + 2 * p->room);
    return 0;
}

limits_pair_t *limits_pair_start(uint64_t max_bytes)
{
    limits_pair_t *p = calloc(1, sizeof *p);
    int fds[2];
    pid_t parent = getpid();
    if (!p || map(p, max_bytes) || pipe(fds)) {
        free(p);
        bench_fail("two processes: %s", strerror(errno));
        return NULL;
    }
    p->pid = fork();
    if (p->pid == 0) {
        close(fds[1]);
        serve(p, fds[0], parent);
    }
    close(fds[0]);
    p->pipe = fds[1];
    if (p->pid > 0) return p;
    bench_fail("two processes: fork: %s", strerror(errno));
    close(p->pipe);
    free(p);
    return NULL;
}

void limits_pair_stop(limits_pair_t *p)
{
    if (!p) return;
    close(p->pipe);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {}
    free(p);
}

/* ---- measuring --------------------------------------------------------------------------------- */

/* Huge pages where there can be any, as the library's own memory has them. */
static void touch(void *memory, uint64_t room)
{
    for (uint64_t at = 0; at < room; at += HUGE_PAGE)
        (void)madvise((char *)memory + at, PAGE, MADV_POPULATE_WRITE);
    (void)madvise(memory, room, MADV_COLLAPSE);
    memset(memory, 0, room);
}

static uint64_t room_of(uint64_t elements)
{
    return (elements * sizeof(float) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void limits_pair_begin(limits_pair_t *p, uint64_t elements)
{
    p->elements = elements;
    p->rounds = 0;
    touch(p->grad, room_of(elements));
    touch(p->value, room_of(elements));
    touch(p->table, room_of(elements));
}

void limits_pair_end(limits_pair_t *p) { madvise(p->grad, 3 * p->room, MADV_REMOVE); }

static int start(limits_pair_t *p, command_t *c)
{
    c->base = p->base;
    p->base += c->count;
    return write(p->pipe, c, sizeof *c) == sizeof *c;
}

static double ping(limits_pair_t *p)
{
    command_t c = { .kind = PING, .count = PINGS + 1 };
    uint64_t begun = 0;
    if (!start(p, &c)) return 0;
    for (uint64_t i = 1; i <= c.count; i++) {
        tell(&p->lines->posted, c.base + i);
        await(&p->lines->added, c.base + i);
        if (i == 1) begun = bench_now(); /* it is awake */
    }
    return (double)(bench_now() - begun) / PINGS / 1000;
}

/* Past the caches: best for more than they hold. */
static void copy_past(float *dst, const float *src, uint64_t elements)
{
    uint64_t i = 0;
#ifdef __SSE2__
    for (; (uintptr_t)dst % 64 == 0 && i + 16 <= elements; i += 16)
        for (uint64_t k = i; k < i + 16; k += 4)
            _mm_stream_ps(dst + k, _mm_loadu_ps(src + k));
    _mm_sfence();
#endif
    memcpy(dst + i, src + i, (elements - i) * sizeof *dst);
}

/* us of an operation; the first one wakes the other process and touches its pages. */
static double passes(limits_pair_t *p, unsigned add, limits_pass_fn *copy, uint64_t bytes,
                     uint64_t ops)
{
    command_t c = { .kind = PASSES, .add = add, .elements = p->elements };
    c.piece = bytes / sizeof(float);
    uint64_t pieces = pieces_of(&c), begun = 0;
    c.count = (ops + 1) * pieces;
    if (!start(p, &c)) return 0;
    for (uint64_t i = 0; i < c.count; i++) {
        uint64_t at = i % pieces * c.piece;
        if (i == pieces) begun = bench_now();
        if (i % pieces == 0) {
            uint64_t may = i + AHEAD * pieces;
            tell(&p->lines->posted, c.base + (may < c.count ? may : c.count));
        }
        await(&p->lines->added, c.base + i + 1);
        copy(p->value + at, p->table + at, length_of(&c, at));
        tell(&p->lines->copied, c.base + i + 1);
    }
    return (double)(bench_now() - begun) / (double)ops / 1000;
}

static double best_passes(limits_pair_t *p, const limits_t *alone)
{
    limits_pass_fn *const copies[] = { limits_copies[alone->copy], copy_past };
    double once = alone->add_us[alone->rounds - 1] + alone->copy_us[alone->rounds - 1], best = 0;
    uint64_t ops = 1 + (uint64_t)(ROUND_US / once);
    for (size_t i = 0; i < PIECES; i++) {
        if (i && piece_bytes[i - 1] >= p->elements * sizeof(float))
            break; /* one piece, as before */
        for (int k = 0; k < 2; k++) {
            double us = passes(p, alone->add, copies[k], piece_bytes[i], ops);
            if (!best || us < best) best = us;
        }
    }
    return best;
}

/* `lines->copied` need not follow the pings: nothing awaits a number of it that is not of its own run. */
void limits_pair_measure(limits_pair_t *p, const limits_t *alone, int with_passes)
{
    if (p->rounds == LIMIT_ROUNDS) return;
    p->us[p->rounds] = with_passes ? best_passes(p, alone) : 0;
    p->ping_us[p->rounds] = ping(p);
    p->rounds++;
}

double limits_pair_us(limits_pair_t *p) { return bench_median(p->us, p->rounds); }

double limits_pair_ping_us(limits_pair_t *p) { return bench_median(p->ping_us, p->rounds); }
