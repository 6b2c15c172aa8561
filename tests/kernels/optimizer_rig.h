/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PSRT_TESTS_OPTIMIZER_RIG_H
#define PSRT_TESTS_OPTIMIZER_RIG_H

#include "kernels/optimizer.h"
#include "support/test.h"

static inline psrti_optimizer_t parsed(const char *text)
{
    psrti_optimizer_t opt;
    cr_assert_eq(psrti_optimizer_parse(text, &opt), PSRT_OK, "%s: %s", text, psrt_last_error());
    return opt;
}

#endif
