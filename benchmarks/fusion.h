/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-bench fusion`: the gradients of a real model, by an allreduce each, by fusion, and as one buffer. */
#ifndef BENCH_FUSION_H
#define BENCH_FUSION_H

int bench_fusion(int argc, char **argv);

#endif
