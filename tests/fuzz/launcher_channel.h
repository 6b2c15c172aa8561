/* SPDX-License-Identifier: Apache-2.0 */
/* Of the target launcher: two ends of a channel, and the connection between them in the fuzzer's hands.
 * Input: a byte whose bit 0 says that the accepting end has another key, then, until the end, a byte: its bits
 * 0-3 choose what happens, bit 4 at which end; behind it what that needs (launcher_channel.c, `what`). */
#ifndef PSRT_TESTS_FUZZ_LAUNCHER_CHANNEL_H
#define PSRT_TESTS_FUZZ_LAUNCHER_CHANNEL_H

#include "fuzz.h"

void fuzz_channel(fuzz_in_t *in);
void fuzz_channel_seeds(void);

#endif
