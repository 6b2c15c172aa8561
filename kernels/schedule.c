/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/schedule.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "kernels/power.h"

#define MAX_STEPS 0x1p53 /* beyond, a double is no count any more */

const char *const psrti_schedule_names[PSRTI_SCHEDULES] = { "constant", "step", "cosine",
                                                            "linear" };

/* x^0/0! - x^2/2! + ..., or from x^1; the terms left out are below 2^-56 for x up to pi / 4. */
static double series(double x, int first)
{
    double term = first ? x : 1, sum = term;
    for (int k = first; k < 18; k += 2) {
        term *= -x * x / ((k + 1) * (k + 2));
        sum += term;
    }
    return sum;
}

/* cos(pi * x), x from 0 to 1. Not cos(): libm picks its code by processor, and servers of a job shall
 * agree to the bit. */
static double cos_pi(double x)
{
    if (x > 0.5) return -cos_pi(1 - x);
    return x <= 0.25 ? series(M_PI * x, 0) : series(M_PI * (0.5 - x), 1);
}

double psrti_schedule_rate(const psrti_schedule_t *s, double lr, uint64_t step)
{
    double p = (double)step - s->warmup;
    if (p < 0) return lr * (((double)step + 1) / (s->warmup + 1));
    double done = s->total > p ? p / s->total : 1;
    switch (s->kind) {
    case PSRTI_SCHEDULE_STEP: return lr * psrti_power(s->gamma, (uint64_t)(p / s->period));
    case PSRTI_SCHEDULE_COSINE: return s->final + (lr - s->final) * ((1 + cos_pi(done)) / 2);
    case PSRTI_SCHEDULE_LINEAR: return done < 1 ? lr + (s->final - lr) * done : s->final;
    default: return lr;
    }
}

static int is_count(double x) { return x >= 0 && x <= MAX_STEPS && x == floor(x); }

static int is_rate(double x) { return x >= 0 && x <= DBL_MAX; }

const char *psrti_schedule_check(const psrti_schedule_t *s)
{
    int by_period = s->kind == PSRTI_SCHEDULE_STEP;
    int to_final = s->kind == PSRTI_SCHEDULE_COSINE || s->kind == PSRTI_SCHEDULE_LINEAR;
    if (!is_count(s->warmup)) return "warmup must be a whole number of steps";
    if (!is_count(s->period)) return "period must be a whole number of steps";
    if (!is_count(s->total)) return "total must be a whole number of steps";
    if (!(s->gamma > 0 && s->gamma <= DBL_MAX)) return "gamma must be a finite number above 0";
    if (!is_rate(s->final)) return "final must be a finite number, at least 0";
    if (by_period && s->period == 0) return "schedule=step needs period, the steps of a rate";
    if (!by_period && s->period != 0) return "period needs schedule=step";
    if (!by_period && s->gamma != PSRTI_SCHEDULE_GAMMA) return "gamma needs schedule=step";
    if (to_final && s->total == 0) return "schedule=cosine and linear need total, their steps";
    if (!to_final && s->total != 0) return "total needs schedule=cosine or linear";
    if (!to_final && s->final != 0) return "final needs schedule=cosine or linear";
    return NULL;
}
