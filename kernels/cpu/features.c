/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can do. This file is compiled for the baseline: it runs everywhere. The builtin
 * asks XGETBV too, whether the system saves the wide registers. */
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/* Not a name that the builtin of clang 14 knows. Asked once: the question is on the path of each block
 * of an optimizer, and under a hypervisor CPUID takes about 10 us. */
static int has_f16c(void)
{
    static _Atomic int known; /* 0: not asked yet, 1: no, 2: yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (!answer) {
        unsigned eax, ebx, ecx = 0, edx;
        answer = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

int psrti_cpu_has_avx2(void) { return __builtin_cpu_supports("avx2") && has_f16c(); }

int psrti_cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
int psrti_cpu_has_avx2(void) { return 0; }

int psrti_cpu_has_avx512(void) { return 0; }
#endif
