/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the hot path: one table per CPU variant, chosen at run time. The scalar table is the
 * reference; every other variant equals it bit for bit (same operations in the same order for each
 * element, no contraction, denormals kept), except for which NaN a NaN is. Pointers need no
 * alignment beyond that of their element; ranges may be equal (in place) where a comment says so,
 * and do not overlap otherwise. n may be 0. */
#ifndef PSRTI_KERNELS_H
#define PSRTI_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/psrt.h>

/* dst[i] = a[i] + b[i] (dst may be a, b or both). */
typedef void (*psrti_add_fn)(void *dst, const void *a, const void *b, uint64_t n);
/* dst[i] = src[i] / divisor, the divisor rounded to the element type first (dst may be src): the
 * average is a true division, so that n equal contributions whose sum is exact give back that
 * value, which a multiplication by the rounded 1/n does not. */
typedef void (*psrti_divide_fn)(void *dst, const void *src, double divisor, uint64_t n);
/* dst[i] = src[i] * factor, the factor rounded to the element type first (dst may be src). */
typedef void (*psrti_scale_fn)(void *dst, const void *src, double factor, uint64_t n);

/* A sum of squares in f64, in 16 lanes whatever the registers, so that every variant gives the same
 * bits: element i of the array goes to lane i % 16. An array can be given in pieces, each but the last a
 * multiple of 16 elements. */
#define PSRTI_LANES 16
typedef struct psrti_squares {
    double lane[PSRTI_LANES];
    int nonfinite; /* an element is NaN or infinite; of f64, lanes overflow earlier */
} psrti_squares_t;
/* Adds n elements to what `sum` (at first zeros) has. */
typedef void (*psrti_squares_fn)(psrti_squares_t *sum, const void *src, uint64_t n);
/* The lanes added in their order, first to last. */
double psrti_squares_total(const psrti_squares_t *sum);

/* dst[i] = src[i] in another format; no overlap. */
typedef void (*psrti_convert_fn)(void *dst, const void *src, uint64_t n);

#define PSRTI_DTYPES (PSRT_U8 + 1)
/* SUM, PROD, MIN, MAX */
#define PSRTI_FOLD_OPS (PSRT_MAX + 1)
/* The folds of psrti_reduce (kernels/reduce.h); floating sums are divided by `ranks`, 0: not. */
typedef void (*psrti_fold_fn)(void *dst, const void *const *src, unsigned nsrc, uint64_t n,
                              uint32_t ranks, int stream);

/* More than a core's share of the caches: worth `stream`. */
#define PSRTI_BULK_BYTES (8u << 20)

typedef struct psrti_kernels {
    const char *name; /* "scalar", "neon", "avx2", "avx512" */
    int score;
    int (*supported)(void);
    void (*copy)(void *dst, const void *src, uint64_t bytes);
    /* The same past the caches, where the variant can: for more than they hold. */
    void (*stream)(void *dst, const void *src, uint64_t bytes);
    struct psrti_kernels_of_type {
        psrti_add_fn add;
        psrti_divide_fn divide;
        psrti_scale_fn scale;
        psrti_squares_fn squares;
    } f32, f64;
    /* Integers: two's complement, a sum beyond the range wraps around. */
    psrti_add_fn add_i32, add_i64;
    /* The 16-bit formats, denormals included on both sides. */
    struct psrti_kernels_of_half {
        psrti_convert_fn to_f32; /* exact */
        /* To the nearest value, ties to even; beyond the range an infinity; a NaN gives a quiet NaN
         * of its sign and upper payload bits. */
        psrti_convert_fn from_f32;
        /* f32 dst[i] = f32 a[i] + 16-bit b[i]; dst may be a. */
        psrti_add_fn add_to_f32;
    } f16, bf16;
    const psrti_fold_fn (*fold)[PSRTI_FOLD_OPS]; /* by dtype and operation */
} psrti_kernels_t;

/* All variants compiled in, best first, NULL at the end. */
const psrti_kernels_t *const *psrti_kernels_all(void);
/* Best supported variant, or the named one ("" or NULL: best). ERR_INVALID with last error if the
 * name is unknown (nearest name given) or not supported by this machine. */
psrt_status_t psrti_kernels_select(const char *name, const psrti_kernels_t **kernels_p);

/* Random and other initial values: element i of table `name`, the same wherever computed. */
typedef struct psrti_init psrti_init_t;
/* spec: "zeros", "constant:value=..", "uniform:low=,high=", "normal:mean=,std=", "glorot", "he",
 * "rank0"; NULL: zeros. The random ones also take seed=. fan_in and fan_out come from the shape as
 * Keras defines them: [in, out], [window.., in, out] with the window counted for both, [n] for
 * both. ERR_INVALID (the text names the table), ERR_NO_MEMORY. */
psrt_status_t psrti_init_parse(const char *spec, const char *table_name, int ndim,
                               const uint64_t *shape, psrti_init_t **init_p);
void psrti_init_destroy(psrti_init_t *init);
int psrti_init_is_rank0(const psrti_init_t *init);
/* Values of elements [first, first + n) into dst of `dtype` (f32, f64; of a constant that they hold
 * also i32, i64). rank0 gives zeros. */
void psrti_init_fill(const psrti_init_t *init, psrt_dtype_t dtype, void *dst, uint64_t first,
                     uint64_t n);

#endif
