/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can do. This file is compiled for the baseline: it runs everywhere. */
#include "kernels/cpu/cpu.h"

int psrti_cpu_has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") !=
           0; /* also asks whether the system saves the registers */
#else
    return 0;
#endif
}
