/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/schedule.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "kernels/optimizer.h"
#include "support/test.h"

static psrti_optimizer_t parsed(const char *text)
{
    psrti_optimizer_t opt;
    cr_assert_eq(psrti_optimizer_parse(text, &opt), PSRT_OK, "%s: %s", text, psrt_last_error());
    return opt;
}

static double rate(const char *text, uint64_t step)
{
    psrti_optimizer_t opt = parsed(text);
    double params[PSRT_OPTIMIZER_MAX_PARAMS];
    psrti_optimizer_params_at(&opt, step, params);
    for (int i = 1; i < PSRT_OPTIMIZER_MAX_PARAMS; i++)
        cr_assert_eq(params[i], opt.params[i], "only lr changes");
    return params[0];
}

static void near(const char *text, uint64_t step, double expected)
{
    double got = rate(text, step);
    cr_assert(fabs(got - expected) <= 1e-15 * 3, "%s at %d: %.17g, expected %.17g", text, (int)step,
              got, expected);
}

/* Each as PyTorch gives it: closed forms of its schedulers, by the libm. */
Test(schedule, constant)
{
    near("sgd:lr=3", 0, 3);
    near("sgd:lr=3", 1000000, 3);
}

Test(schedule, step)
{
    const char *text = "sgd:lr=0.8,schedule=step,period=3,gamma=0.5";
    static const double expected[] = { 0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1 };
    for (size_t i = 0; i < PSRTI_COUNT(expected); i++)
        near(text, i, expected[i]);
    near("sgd:lr=1,schedule=step,period=1", 2, 0.01);
}

Test(schedule, cosine)
{
    const char *text = "adam:lr=0.7,schedule=cosine,total=1000,final=0.1";
    for (uint64_t s = 0; s <= 1000; s++)
        near(text, s, 0.1 + (0.7 - 0.1) * (1 + cos(M_PI * (double)s / 1000)) / 2);
    cr_assert_eq(rate(text, 0), 0.7);
    cr_assert_eq(rate(text, 1000), 0.1);
    cr_assert_eq(rate(text, 1001), 0.1, "it stays");
    cr_assert_eq(rate(text, UINT64_C(1) << 40), 0.1);
}

Test(schedule, linear)
{
    const char *text = "sgd:lr=0.5,schedule=linear,total=8,final=0.1";
    for (uint64_t s = 0; s <= 8; s++)
        near(text, s, 0.5 - 0.05 * (double)s);
    cr_assert_eq(rate(text, 8), 0.1);
    cr_assert_eq(rate(text, 99), 0.1);
    near("sgd:lr=0.1,schedule=linear,total=4,final=0.5", 1, 0.2);
}

/* torch.optim.lr_scheduler.LinearLR(start_factor=1/5, total_iters=4), then the schedule from its own 0. */
Test(schedule, warmup)
{
    static const double up[] = { 0.2, 0.4, 0.6, 0.8, 1, 1 };
    for (size_t i = 0; i < PSRTI_COUNT(up); i++)
        near("sgd:lr=1,warmup=4", i, up[i]);
    for (uint64_t s = 0; s < 4; s++)
        near("sgd:lr=1,warmup=4,schedule=linear,total=10", s, up[s]);
    for (uint64_t s = 4; s <= 14; s++)
        near("sgd:lr=1,warmup=4,schedule=linear,total=10", s, 1 - 0.1 * (double)(s - 4));
    near("sgd:lr=1,warmup=4,schedule=step,period=2,gamma=0.5", 5, 1);
    near("sgd:lr=1,warmup=4,schedule=step,period=2,gamma=0.5", 6, 0.5);
}

Test(schedule, wrong_ones_say_what)
{
    static const char *const bad[][2] = {
        { "sgd:schedule=cosin,total=3", "\"cosine\"?" },
        { "sgd:schedule=1,period=3", "schedule" },
        { "sgd:scheduel=step", "\"schedule\"?" },
        { "sgd:schedule=step", "needs period" },
        { "sgd:schedule=cosine", "need total" },
        { "sgd:schedule=linear,total=2.5", "total must" },
        { "sgd:schedule=linear,total=-1", "total must" },
        { "sgd:schedule=step,period=0.5", "period must" },
        { "sgd:schedule=step,period=1,gamma=0", "gamma must" },
        { "sgd:schedule=cosine,total=5,final=-1", "final must" },
        { "sgd:period=3", "needs schedule=step" },
        { "sgd:gamma=0.5", "needs schedule=step" },
        { "sgd:total=3", "total needs" },
        { "sgd:schedule=step,period=1,final=1", "final needs" },
        { "sgd:warmup=1e300", "warmup must" },
        { "none:warmup=5", "lr, which it does not have" },
        { "ftrl:schedule=cosine,total=5", "final is no lr" },
    };
    for (size_t i = 0; i < PSRTI_COUNT(bad); i++) {
        psrti_optimizer_t opt;
        cr_assert_eq(psrti_optimizer_parse(bad[i][0], &opt), PSRT_ERR_INVALID, "%s", bad[i][0]);
        cr_assert(strstr(psrt_last_error(), bad[i][1]), "%s: %s", bad[i][0], psrt_last_error());
    }
}
