/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a check with every variant that this processor has. */
#ifndef PSRT_TESTS_KERNELS_VARIANTS_H
#define PSRT_TESTS_KERNELS_VARIANTS_H

#include "kernels/kernels.h"
#include "support/test.h"

static inline void each_variant(void (*check)(const psrti_kernels_t *k))
{
    unsigned checked = 0;
    for (const psrti_kernels_t *const *k = psrti_kernels_all(); *k; k++) {
        if (!(*k)->supported()) {
            cr_log_info("kernels variant %s: not supported here", (*k)->name);
            continue;
        }
        check(*k);
        checked++;
    }
    cr_assert_gt(checked, 0u);
}

#endif
