/* SPDX-License-Identifier: Apache-2.0 */
/* The loops that kernels are compared with. Compiled with -O3 for the baseline of the architecture: what
 * a plain program has. */
#include "kernels.h"

#define DEFINE_FOLD(name, D, S)                                                                    \
    static void name(void *dst, const void *src, uint64_t n)                                       \
    {                                                                                              \
        D *d = dst;                                                                                \
        const S *s = src;                                                                          \
        for (uint64_t i = 0; i < n; i++)                                                           \
            d[i] += s[i];                                                                          \
    }

#define DEFINE_MOVE(name, D, S)                                                                    \
    static void name(void *dst, const void *src, uint64_t n)                                       \
    {                                                                                              \
        D *d = dst;                                                                                \
        const S *s = src;                                                                          \
        for (uint64_t i = 0; i < n; i++)                                                           \
            d[i] = (D)(s[i] + 1);                                                                  \
    }

/* In integers, whose sum the compiler may reorder: no loop that only reads is faster. */
#define DEFINE_READ(name, S)                                                                       \
    static void name(void *dst, const void *src, uint64_t n)                                       \
    {                                                                                              \
        const S *s = src;                                                                          \
        S sum = 0;                                                                                 \
        for (uint64_t i = 0; i < n; i++)                                                           \
            sum += s[i];                                                                           \
        *(volatile S *)dst = sum;                                                                  \
    }

DEFINE_FOLD(fold_8_8, double, double)
DEFINE_FOLD(fold_4_4, float, float)
DEFINE_FOLD(fold_4_2, uint32_t, uint16_t)
DEFINE_FOLD(fold_2_2, uint16_t, uint16_t)
DEFINE_FOLD(fold_1_1, uint8_t, uint8_t)
DEFINE_MOVE(move_1_1, uint8_t, uint8_t)
DEFINE_MOVE(move_8_8, double, double)
DEFINE_MOVE(move_4_4, float, float)
DEFINE_MOVE(move_4_2, uint32_t, uint16_t)
DEFINE_MOVE(move_2_4, uint16_t, uint32_t)
DEFINE_READ(read_8, uint64_t)
DEFINE_READ(read_4, uint32_t)

kernels_plain_fn *kernels_plain(uint32_t dst_bytes, uint32_t src_bytes, int fold)
{
    switch (dst_bytes * 10 + src_bytes) {
    case 88: return fold ? fold_8_8 : move_8_8;
    case 44: return fold ? fold_4_4 : move_4_4;
    case 42: return fold ? fold_4_2 : move_4_2;
    case 22: return fold ? fold_2_2 : NULL;
    case 24: return fold ? NULL : move_2_4;
    case 8: return fold ? NULL : read_8;
    case 4: return fold ? NULL : read_4;
    case 11: return fold ? fold_1_1 : move_1_1;
    default: return NULL;
    }
}

/* In blocks, so that the gradient comes from memory once for any number of states. */
#define BLOCK 1024

#define DEFINE_OPTIMIZER(name, T, FOLD)                                                            \
    void name(const void *grad, void *value, void *const *state, int states, uint64_t n)           \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i += BLOCK) {                                                  \
            const uint64_t len = n - i < BLOCK ? n - i : BLOCK;                                    \
            const T *g = (const T *)grad + i;                                                      \
            FOLD((T *)value + i, g, len);                                                          \
            for (int s = 0; s < states; s++)                                                       \
                FOLD((T *)state[s] + i, g, len);                                                   \
        }                                                                                          \
    }

DEFINE_OPTIMIZER(kernels_plain_f32, float, fold_4_4)
DEFINE_OPTIMIZER(kernels_plain_f64, double, fold_8_8)
