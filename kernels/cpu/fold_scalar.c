/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of reductions, an element at a time. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fold.h"

#define DEFINE_FOLD(TYPE, T, ACC, ACCTYPE, LOAD, FINISH, OP)                                       \
    static void fold_##OP##_##TYPE(void *dst, const void *const *src, unsigned nsrc, uint64_t n,   \
                                   uint32_t ranks, int stream)                                     \
    {                                                                                              \
        uint64_t i = 0;                                                                            \
        (void)ranks, (void)stream;                                                                 \
        PSRTI_FOLD_TAIL(T, ACC, LOAD, psrti_##OP##_##ACCTYPE, FINISH)                              \
    }
PSRTI_FOLDS(DEFINE_FOLD)

const psrti_fold_fn psrti_fold_scalar[PSRTI_DTYPES][PSRTI_FOLD_OPS] = PSRTI_FOLD_TABLE;
