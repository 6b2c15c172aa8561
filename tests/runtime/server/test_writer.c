/* SPDX-License-Identifier: Apache-2.0 */
/* Values go past the caches when writing in them was slow, and only for a while. */
#include <string.h>

#include "runtime/server/writer.h"
#include "support/test.h"

#define BYTES 8192u
#define FAST_NS (BYTES / 20) /* 20 GB/s */
#define SLOW_NS (BYTES / 2)  /* 2 GB/s  */
#define MANY 1000u

static unsigned copies, streams;

static void copy(void *dst, const void *src, uint64_t bytes)
{
    copies++;
    memcpy(dst, src, bytes);
}

static void stream(void *dst, const void *src, uint64_t bytes)
{
    streams++;
    memcpy(dst, src, bytes);
}

static void write_block(psrti_writer_t *w)
{
    static const psrti_kernels_t kernels = { .copy = copy, .stream = stream };
    static unsigned char from[BYTES], to[BYTES];
    static unsigned char seed;
    for (unsigned i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 7 + i / 251 + seed);
    seed++;
    psrti_writer_write(w, &kernels, to, from, BYTES);
    cr_assert_eq(memcmp(to, from, BYTES), 0);
}

/* How many timed writes of `ns` it takes until it writes past the caches; `most`: it does not. */
static unsigned learn(psrti_writer_t *w, uint64_t ns, unsigned most)
{
    unsigned n = 0;
    while (n < most && !w->past) {
        psrti_writer_learn(w, BYTES, ns);
        n++;
    }
    return n;
}

Test(writer, fast_writes_stay_in_the_caches)
{
    psrti_writer_t w = { 0 };
    cr_assert_eq(learn(&w, FAST_NS, MANY), MANY);
    write_block(&w);
    cr_assert_eq(copies, 1u);
    cr_assert_eq(streams, 0u);
}

Test(writer, few_are_timed)
{
    psrti_writer_t w = { 0 };
    unsigned timed = 0;
    for (unsigned i = 0; i < 96; i++) {
        timed += w.untimed == 0;
        write_block(&w);
    }
    cr_assert(timed >= 1 && timed <= 12, "%u", timed);
    cr_assert_eq(copies + streams, 96u);
}

Test(writer, an_interrupt_is_forgiven)
{
    psrti_writer_t w = { 0 };
    for (unsigned i = 0; i < MANY; i++) {
        psrti_writer_learn(&w, BYTES, 100 * SLOW_NS);
        cr_assert_eq(learn(&w, FAST_NS, 1), 1u);
    }
}

Test(writer, slow_ones_go_past_the_caches_for_a_while)
{
    psrti_writer_t w = { 0 };
    unsigned first = learn(&w, SLOW_NS, MANY);
    cr_assert(first < MANY);
    while (w.past)
        write_block(&w);
    cr_assert_eq(copies, 0u);
    cr_assert(streams > MANY);
    cr_assert_eq(learn(&w, SLOW_NS, MANY), first, "it is tried anew");
}
