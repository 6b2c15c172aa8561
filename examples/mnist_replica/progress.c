/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL 1.0
/* The line overwrites itself, which fails once it wrapped: no wrapping while it is written. */
#define REDRAW "\r\033[?7l"
#define REDRAWN "\033[K\033[?7h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_start(progress_t *p, psrt_context_t *ctx, uint64_t total_steps,
                    uint64_t steps_per_epoch, uint64_t images_per_step, int enabled)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    psrt_context_query(ctx, &attr); /* on failure the counters stay 0, which spoils one figure */
    *p = (progress_t){ .ctx = ctx,
                       .enabled = enabled,
                       .terminal = isatty(STDOUT_FILENO),
                       .total_steps = total_steps,
                       .steps_per_epoch = steps_per_epoch,
                       .images_per_step = images_per_step,
                       .last_pushed = attr.pushed_bytes,
                       .last_pulled = attr.pulled_bytes };
    p->start = p->last = seconds();
}

static void print_line(progress_t *p, uint64_t step, double now)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    psrt_context_query(p->ctx, &attr);
    unsigned long long epoch = (step - 1) / p->steps_per_epoch + 1;
    unsigned long long epochs = (p->total_steps - 1) / p->steps_per_epoch + 1;
    double span = now - p->last;
    double steps = (double)(step - p->last_step);
    /* Worker 0 knows its own counters; the others do the same work. */
    double gigabytes = 1e-9 * attr.workers / span;
    printf("%sepoch %llu/%llu  step %llu/%llu  loss %.4f  %.0f images/s  push %.2f GB/s  "
           "pull %.2f GB/s  %.0f s left%s",
           p->terminal ? REDRAW : "", epoch, epochs, (unsigned long long)step,
           (unsigned long long)p->total_steps, p->loss_sum / steps,
           steps * (double)p->images_per_step / span,
           gigabytes * (double)(attr.pushed_bytes - p->last_pushed),
           gigabytes * (double)(attr.pulled_bytes - p->last_pulled),
           (now - p->start) / (double)step * (double)(p->total_steps - step),
           p->terminal ? REDRAWN : "\n");
    fflush(stdout);
    p->last = now, p->last_step = step, p->loss_sum = 0;
    p->last_pushed = attr.pushed_bytes, p->last_pulled = attr.pulled_bytes;
}

void progress_step(progress_t *p, uint64_t step, double loss)
{
    p->loss_sum += loss;
    if (!p->enabled) return;
    double now = seconds();
    if (now - p->last >= INTERVAL || step == p->total_steps) print_line(p, step, now);
}

void progress_end(progress_t *p)
{
    if (!p->enabled) return;
    double span = seconds() - p->start;
    printf("%strained %llu steps in %.1f s, %.0f images/s\n", p->terminal ? "\n" : "",
           (unsigned long long)p->total_steps, span,
           (double)(p->total_steps * p->images_per_step) / span);
}
