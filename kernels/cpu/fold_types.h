/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of FOLD_BYTES bytes, for fold_vector.h and what a variant defines for it. */
#include <stdint.h>

#define FOLD_VECTOR(TYPE, T) typedef T fold_##TYPE##_t __attribute__((vector_size(FOLD_BYTES)));
FOLD_VECTOR(f32, float)
FOLD_VECTOR(f64, double)
FOLD_VECTOR(i8, int8_t)
FOLD_VECTOR(i16, int16_t)
FOLD_VECTOR(i32, int32_t)
FOLD_VECTOR(i64, int64_t)
FOLD_VECTOR(u8, uint8_t)
FOLD_VECTOR(bits, uint64_t) /* of any of them */
