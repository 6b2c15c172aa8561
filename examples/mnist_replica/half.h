/* SPDX-License-Identifier: Apache-2.0 */
/* f32 to and from the 16-bit formats, f16 (IEEE binary16) and bf16 (the upper half of an f32), to
 * the nearest value, ties to even. */
#ifndef MNIST_HALF_H
#define MNIST_HALF_H

#include <stddef.h>
#include <stdint.h>

void half_from_f16(const uint16_t *in, float *out, size_t count);
void half_to_f16(const float *in, uint16_t *out, size_t count);
void half_from_bf16(const uint16_t *in, float *out, size_t count);
void half_to_bf16(const float *in, uint16_t *out, size_t count);

#endif
