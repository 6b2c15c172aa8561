/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values. Random ones are a function of (seed, table name, element): Philox4x32 with the
 * key from seed and name, and one counter for each group of elements that shares its 128 bits, four
 * f32 or two f64. So every split of a table over servers and threads gives the same values.
 *
 * Uniform values are made of + and * alone and equal everywhere. Normal ones (Box-Muller, in
 * double) use log, sin and cos of libm, whose last bit may differ between versions and
 * processors. */
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "kernels/names.h"

typedef enum { CONSTANT, UNIFORM, NORMAL, RANK0 } kind_t;

struct psrti_init {
    kind_t kind;
    double a, b; /* constant: value; uniform: low, high; normal: mean, standard deviation */
    uint32_t key[2];
};

/* Keras' compute_fans, whose shapes end in [..., in, out]: leading extents (a convolution's window)
 * count for both; of one dimension, its extent is both. */
static void compute_fans(int ndim, const uint64_t *shape, double *fan_in, double *fan_out)
{
    double window = 1;
    for (int i = 0; i < ndim - 2; i++)
        window *= (double)shape[i];
    *fan_out = window * (double)shape[ndim - 1];
    *fan_in = ndim == 1 ? *fan_out : window * (double)shape[ndim - 2];
}

/* ---- the table of initializers --------------------------------------------------------------- */

typedef struct form {
    const char *name;
    kind_t kind;
    size_t num_keys;
    const char *keys[3];
    double defaults[3];
    /* Sets a and b from the keys' values; NULL or what is wrong with them. */
    const char *(*set)(psrti_init_t *init, const double *values, double fan_in, double fan_out);
} form_t;

static const char *set_zeros(psrti_init_t *init, const double *values, double fan_in,
                             double fan_out)
{
    (void)values, (void)fan_in, (void)fan_out;
    init->a = 0;
    return NULL;
}

static const char *set_constant(psrti_init_t *init, const double *values, double fan_in,
                                double fan_out)
{
    (void)fan_in, (void)fan_out;
    init->a = values[0];
    return NULL;
}

static const char *set_uniform(psrti_init_t *init, const double *values, double fan_in,
                               double fan_out)
{
    (void)fan_in, (void)fan_out;
    init->a = values[1];
    init->b = values[2];
    if (!(init->a < init->b)) return "low must be below high";
    return isfinite(init->b - init->a) ? NULL : "the range from low to high is too large";
}

static const char *set_normal(psrti_init_t *init, const double *values, double fan_in,
                              double fan_out)
{
    (void)fan_in, (void)fan_out;
    init->a = values[1];
    init->b = values[2];
    return init->b >= 0 ? NULL : "std must not be negative";
}

/* Glorot and Bengio, 2010; Keras' GlorotUniform, PyTorch's xavier_uniform_. */
static const char *set_glorot(psrti_init_t *init, const double *values, double fan_in,
                              double fan_out)
{
    (void)values;
    init->b = sqrt(6 / (fan_in + fan_out));
    init->a = -init->b;
    return NULL;
}

/* He et al., 2015; PyTorch's kaiming_normal_. (Keras' HeNormal cuts the tails at two
 * deviations.) */
static const char *set_he(psrti_init_t *init, const double *values, double fan_in, double fan_out)
{
    (void)values, (void)fan_out;
    init->a = 0;
    init->b = sqrt(2 / fan_in);
    return NULL;
}

/* Random ones have the seed first. Defaults of uniform and normal are those of Keras. */
static const form_t forms[] = {
    { "zeros", CONSTANT, 0, { NULL }, { 0 }, set_zeros },
    { "constant", CONSTANT, 1, { "value" }, { 0 }, set_constant },
    { "uniform", UNIFORM, 3, { "seed", "low", "high" }, { 0, -0.05, 0.05 }, set_uniform },
    { "normal", NORMAL, 3, { "seed", "mean", "std" }, { 0, 0, 0.05 }, set_normal },
    { "glorot", UNIFORM, 1, { "seed" }, { 0 }, set_glorot },
    { "he", NORMAL, 1, { "seed" }, { 0 }, set_he },
    { "rank0", RANK0, 0, { NULL }, { 0 }, set_zeros },
};

/* NULL with the error set when there is none of that name. */
static const form_t *find_form(const char *where, const char *name)
{
    const char *names[PSRTI_COUNT(forms)];
    for (size_t i = 0; i < PSRTI_COUNT(forms); i++) {
        names[i] = forms[i].name;
        if (strcmp(names[i], name) == 0) return &forms[i];
    }
    psrti_fail_unknown(where, name, names, PSRTI_COUNT(forms));
    return NULL;
}

/* ---- parse ----------------------------------------------------------------------------------- */

static const char *set_key(psrti_init_t *init, double seed, const char *table_name)
{
    if (!(seed >= 0 && seed <= 0x1p53 && seed == floor(seed)))
        return "seed must be an integer from 0 to 2^53";
    uint64_t name = psrti_hash_bytes(table_name, strlen(table_name));
    uint64_t key = psrti_mix64(name ^ psrti_mix64((uint64_t)seed));
    init->key[0] = (uint32_t)key;
    init->key[1] = (uint32_t)(key >> 32);
    return NULL;
}

static const char *set_all(psrti_init_t *init, const form_t *form, const double *values,
                           const char *table_name, int ndim, const uint64_t *shape)
{
    double fan_in, fan_out;
    int random = form->kind == UNIFORM || form->kind == NORMAL;
    const char *wrong = random ? set_key(init, values[0], table_name) : NULL;
    if (wrong) return wrong;
    init->kind = form->kind;
    compute_fans(ndim, shape, &fan_in, &fan_out);
    return form->set(init, values, fan_in, fan_out);
}

psrt_status_t psrti_init_parse(const char *spec_text, const char *table_name, int ndim,
                               const uint64_t *shape, psrti_init_t **init_p)
{
    char where[300];
    snprintf(where, sizeof where, "table %s: initializer", table_name);
    psrti_spec_t spec;
    psrt_status_t status = psrti_spec_parse(where, spec_text ? spec_text : "zeros", &spec);
    if (status != PSRT_OK) return status;
    const form_t *form = find_form(where, spec.name);
    if (!form) return PSRT_ERR_INVALID;
    double values[3];
    memcpy(values, form->defaults, sizeof values);
    status = psrti_spec_numbers(where, &spec, form->keys, values, form->num_keys);
    if (status != PSRT_OK) return status;

    psrti_init_t *init = calloc(1, sizeof *init);
    if (!init) return psrti_fail(PSRT_ERR_NO_MEMORY, "%s: no memory", where);
    const char *wrong = set_all(init, form, values, table_name, ndim, shape);
    if (wrong) {
        free(init);
        return psrti_fail(PSRT_ERR_INVALID, "%s %s: %s", where, form->name, wrong);
    }
    *init_p = init;
    return PSRT_OK;
}

void psrti_init_destroy(psrti_init_t *init) { free(init); }

int psrti_init_is_rank0(const psrti_init_t *init) { return init->kind == RANK0; }

/* ---- values ---------------------------------------------------------------------------------- */

/* 53 random bits of two words, in [0, 1). */
static double unit53(uint32_t low, uint32_t high)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

/* u in [0, 1) to [low, high). Rounding may reach high, which then becomes the number below it. */
static double in_range_f32(double u, double low, double high)
{
    float v = (float)(low + (high - low) * u);
    return v < (float)high ? v : nextafterf((float)high, (float)low);
}

static double in_range_f64(double u, double low, double high)
{
    double v = low + (high - low) * u;
    return v < high ? v : nextafter(high, low);
}

/* Two normal numbers of u1 in (0, 1] and u2 in [0, 1). */
static void box_muller(const psrti_init_t *init, double u1, double u2, double out[2])
{
    double radius = init->b * sqrt(-2 * log(u1));
    out[0] = init->a + radius * cos(2 * M_PI * u2);
    out[1] = init->a + radius * sin(2 * M_PI * u2);
}

/* The four f32 or two f64 of a counter. */
static void draw_f32(const psrti_init_t *init, const uint32_t word[4], double out[4])
{
    if (init->kind == UNIFORM) {
        for (int i = 0; i < 4; i++)
            out[i] = in_range_f32((double)(word[i] >> 8) * 0x1p-24, init->a, init->b);
        return;
    }
    for (int i = 0; i < 4; i += 2)
        box_muller(init, ((double)word[i] + 1) * 0x1p-32, (double)word[i + 1] * 0x1p-32, out + i);
}

static void draw_f64(const psrti_init_t *init, const uint32_t word[4], double out[2])
{
    double u1 = unit53(word[0], word[1]), u2 = unit53(word[2], word[3]);
    if (init->kind == UNIFORM) {
        out[0] = in_range_f64(u1, init->a, init->b);
        out[1] = in_range_f64(u2, init->a, init->b);
        return;
    }
    box_muller(init, u1 + 0x1p-53, u2, out);
}

static void store(psrt_dtype_t dtype, void *dst, uint64_t i, double value)
{
    switch (dtype) {
    case PSRT_F64: ((double *)dst)[i] = value; break;
    case PSRT_I32: ((int32_t *)dst)[i] = (int32_t)value; break;
    case PSRT_I64: ((int64_t *)dst)[i] = (int64_t)value; break;
    default: ((float *)dst)[i] = (float)value; break;
    }
}

static void fill_random(const psrti_init_t *init, psrt_dtype_t dtype, void *dst, uint64_t first,
                        uint64_t n)
{
    const unsigned group = dtype == PSRT_F64 ? 2 : 4;
    for (uint64_t i = 0; i < n;) {
        uint64_t index = (first + i) / group;
        unsigned lane = (unsigned)((first + i) % group);
        /* the last word keeps the streams of the types apart */
        uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), 0, group }, word[4];
        double values[4] = { 0 };
        psrti_philox4x32(counter, init->key, word);
        if (dtype == PSRT_F64)
            draw_f64(init, word, values);
        else
            draw_f32(init, word, values);
        for (; lane < group && i < n; lane++, i++)
            store(dtype, dst, i, values[lane]);
    }
}

void psrti_init_fill(const psrti_init_t *init, psrt_dtype_t dtype, void *dst, uint64_t first,
                     uint64_t n)
{
    if (init->kind == UNIFORM || init->kind == NORMAL) {
        fill_random(init, dtype, dst, first, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        store(dtype, dst, i, init->a);
}
