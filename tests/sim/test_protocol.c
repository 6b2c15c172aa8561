/* SPDX-License-Identifier: Apache-2.0 */
/* Runs many seeds of the simulator. A seed that fails is replayed, with a trace, by the command that is
 * printed. PSRT_SIM_SEEDS=n runs another number of seeds, PSRT_SIM_FIRST=n from another one. */
#include <inttypes.h>
#include <stdlib.h>

#include "sim.h"
#include "support/test.h"

#define SEEDS 1000

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    int64_t value;
    if (!text) return otherwise;
    return psrti_parse_i64(text, 0, INT64_MAX, &value) == PSRT_OK ? (uint64_t)value : otherwise;
}

static void print_counts(const sim_counts_t *counts, uint64_t seeds)
{
    printf("%" PRIu64 " seeds:\n", seeds);
#define PRINT(name) printf("  %-24s %" PRIu64 "\n", #name, counts->name);
    SIM_COUNTS(PRINT)
#undef PRINT
    fflush(stdout);
}

Test(sim, protocol)
{
    sim_counts_t counts = { 0 };
    char text[512] = "";
    uint64_t first = setting("PSRT_SIM_FIRST", 1), seeds = setting("PSRT_SIM_SEEDS", SEEDS);
    if (getenv("PSRT_SIM_SEED")) first = setting("PSRT_SIM_SEED", 1), seeds = 1;
    int trace = (int)setting("PSRT_SIM_TRACE", 0);
    for (uint64_t seed = first; seed < first + seeds; seed++)
        cr_assert(sim_run(seed, trace, &counts, text, sizeof text),
                  "seed %" PRIu64 " %s\nreplay: PSRT_SIM_SEED=%" PRIu64
                  " PSRT_SIM_TRACE=1 tests/bin/sim_test_protocol -j1",
                  seed, text, seed);
    print_counts(&counts, seeds);
    if (seeds < SEEDS) return;
#define HAPPENED(name) cr_assert(counts.name > 0, "no seed had any: " #name);
    SIM_COUNTS(HAPPENED)
#undef HAPPENED
}
