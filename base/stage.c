/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stage.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/util.h"

#define LINE 64u
#define TIMED_BYTES 16384u /* less is not worth a look at the clock */
#define TRY_EVERY 64u /* copies past the caches until one begins with TIMED_BYTES through them */
#define UNIT_BYTES 65536u /* that the cost is counted for */
#define SLOW_NS 16384u    /* for these: 4 GB/s */

/* Whole lines; returns how many bytes they are. The fence orders them before the word that announces them. */
#ifdef __SSE2__
static uint64_t copy_past(char *to, const char *from, uint64_t bytes)
{
    uint64_t end = bytes / LINE * LINE;
    for (uint64_t i = 0; i < end; i += LINE) {
        const __m128i *line = (const __m128i *)(from + i);
        const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        const __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        _mm_stream_si128((__m128i *)(to + i), a);
        _mm_stream_si128((__m128i *)(to + i) + 1, b);
        _mm_stream_si128((__m128i *)(to + i) + 2, c);
        _mm_stream_si128((__m128i *)(to + i) + 3, d);
    }
    _mm_sfence();
    return end;
}
#else
static uint64_t copy_past(char *to, const char *from, uint64_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return 0;
}
#endif

/* A copy that was interrupted says little: it counts as four times the usual at most. */
void psrti_stage_learn(psrti_stage_t *stage, uint64_t bytes, uint64_t ns)
{
    uint64_t cost = ns * UNIT_BYTES / bytes + 1, known = stage->cost;
    stage->cost = known ? (3 * known + PSRTI_MIN(cost, 4 * known)) / 4 : cost;
}

static void copy_timed(psrti_stage_t *stage, char *to, const char *from, uint64_t bytes)
{
    uint64_t start = psrti_now_ns();
    memcpy(to, from, bytes);
    psrti_stage_learn(stage, bytes, psrti_now_ns() - start);
}

void psrti_stage_copy(psrti_stage_t *stage, void *dst, const void *src, uint64_t bytes)
{
    char *to = dst;
    const char *from = src;
    uint64_t done = 0;

    if (bytes >= TIMED_BYTES) {
        int past = stage->cost > SLOW_NS;
        if (!past || stage->past++ % TRY_EVERY == 0) {
            done = past ? TIMED_BYTES : bytes;
            copy_timed(stage, to, from, done);
        }
        done += copy_past(to + done, from + done, bytes - done);
    }
    memcpy(to + done, from + done, bytes - done);
}
