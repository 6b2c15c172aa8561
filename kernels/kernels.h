/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the hot path: one table per CPU variant, chosen at run time. The scalar table is the
 * reference; every other variant equals it bit for bit (same operations in the same order for each
 * element, explicit fma where the definition says fma, no contraction, denormals kept). Pointers need
 * no alignment beyond that of their element; ranges may be equal (in place) but not overlap otherwise,
 * where a comment says so. n may be 0. */
#ifndef PSRTI_KERNELS_H
#define PSRTI_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/psrt.h>

/* dst[i] += src[i], and dst[i] = a[i] + b[i] (dst may be a or b). */
typedef void (*psrti_add_fn)(void *dst, const void *a, const void *b, uint64_t n);
/* dst[i] = src[i] * factor, the factor rounded to the element type first (dst may be src). */
typedef void (*psrti_scale_fn)(void *dst, const void *src, double factor, uint64_t n);

typedef struct psrti_kernels {
    const char *name; /* "scalar", "avx2" */
    int score;
    int (*supported)(void);
    void (*copy)(void *dst, const void *src, uint64_t bytes);
    struct psrti_kernels_of_type {
        psrti_add_fn add;
        psrti_scale_fn scale;
    } f32, f64;
} psrti_kernels_t;

/* All variants compiled in, best first, NULL at the end. */
const psrti_kernels_t *const *psrti_kernels_all(void);
/* Best supported variant, or the named one ("" or NULL: best). ERR_INVALID with last error if the
 * name is unknown (nearest name given) or not supported by this machine. */
psrt_status_t psrti_kernels_select(const char *name, const psrti_kernels_t **kernels_p);

/* Random and other initial values: element i of table `name`, the same wherever computed. */
typedef struct psrti_init psrti_init_t;
/* spec: "zeros", "constant:value=..", "uniform:low=,high=", "normal:mean=,std=", "glorot", "he",
 * "rank0"; NULL: zeros. fan_in and fan_out from the shape: for 2-D [in, out]; for n-D
 * fan_in = product of all but the last, fan_out = last extent times ... (documented in the .c, as
 * TensorFlow/Keras define them). */
psrt_status_t psrti_init_parse(const char *spec, const char *table_name, int ndim,
                               const uint64_t *shape, psrti_init_t **init_p);
void psrti_init_destroy(psrti_init_t *init);
int psrti_init_is_rank0(const psrti_init_t *init);
/* Values of elements [first, first + n) into dst of `dtype` (f32, f64). */
void psrti_init_fill(const psrti_init_t *init, psrt_dtype_t dtype, void *dst, uint64_t first,
                     uint64_t n);

#endif
