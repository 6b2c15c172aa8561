/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/server/writer.h"

#include "base/util.h"

#define TIMED_EVERY 32u          /* of the writes in the caches one is timed       */
#define SLOW_GBPS 12u            /* slower than that...                            */
#define TRIES 4                  /* so many times in a row, as an interrupt is slow */
#define PAST_BYTES (64ull << 20) /* written past them until it is tried again      */

void psrti_writer_learn(psrti_writer_t *w, uint64_t bytes, uint64_t ns)
{
    w->slow = bytes < SLOW_GBPS * ns ? w->slow + 1 : 0;
    if (w->slow < TRIES) return;
    w->past = PAST_BYTES;
    w->slow = 0;
}

void psrti_writer_write(psrti_writer_t *w, const psrti_kernels_t *k, void *dst, const void *src,
                        uint64_t bytes)
{
    if (w->past) {
        k->stream(dst, src, bytes);
        w->past -= PSRTI_MIN(w->past, bytes);
        return;
    }
    if (w->untimed) {
        w->untimed--;
        k->copy(dst, src, bytes);
        return;
    }
    w->untimed = TIMED_EVERY - 1;
    uint64_t start = psrti_now_ns();
    k->copy(dst, src, bytes);
    psrti_writer_learn(w, bytes, psrti_now_ns() - start);
}
