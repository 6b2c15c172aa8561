/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/table_spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/spec.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/registry.h"
#include "runtime/core/placement.h"

#define MAX_BYTES (1ull << 62) /* so that offsets and sums of sizes cannot overflow */
#define MAX_WAIT 1000000       /* of ssp:s and sync:backup=b */

static psrt_status_t set_shape(const psrt_dense_params_t *p, psrti_table_spec_t *spec)
{
    if (p->ndim < 1 || p->ndim > PSRT_MAX_DIMS)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: ndim is %d, must be 1 to %d", spec->name,
                          p->ndim, PSRT_MAX_DIMS);
    uint64_t n = psrt_dtype_size(spec->value_dtype);
    for (int i = 0; i < p->ndim; i++) {
        if (p->shape[i] == 0)
            return psrti_fail(PSRT_ERR_INVALID, "table %s: shape[%d] is 0, a table has elements",
                              spec->name, i);
        if (!psrti_mul_u64(n, p->shape[i], &n) || n > MAX_BYTES)
            return psrti_fail(PSRT_ERR_INVALID, "table %s: the shape has more than 2^62 bytes",
                              spec->name);
        spec->shape[i] = p->shape[i];
    }
    spec->ndim = p->ndim;
    spec->elements = n / psrt_dtype_size(spec->value_dtype);
    return PSRT_OK;
}

static psrt_status_t set_dtype(const psrt_dense_params_t *p, psrti_table_spec_t *spec)
{
    psrt_dtype_t dtype = p->dtype == PSRT_DTYPE_NONE ? PSRT_F32 : p->dtype;
    if (psrt_dtype_size(dtype) == 0)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: dtype %d is not one of f32, f64, f16, bf16, i32, i64",
                          spec->name, (int)dtype);
    if (dtype == PSRT_I8 || dtype == PSRT_I16 || dtype == PSRT_U8)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: dtype %s is for collectives, a table is f32, f64, f16, bf16, "
                          "i32 or i64",
                          spec->name, psrt_dtype_name(dtype));
    spec->value_dtype = spec->grad_dtype = dtype;
    spec->acc_dtype = dtype == PSRT_F16 || dtype == PSRT_BF16 ? PSRT_F32 : dtype;
    return PSRT_OK;
}

/* The parsers of texts know their subject, not whose it is. */
static psrt_status_t name_table(psrt_status_t rc, const psrti_table_spec_t *spec)
{
    return rc ? psrti_fail(rc, "table %s: %s", spec->name, psrt_last_error()) : PSRT_OK;
}

static int is_integer(const psrti_table_spec_t *spec)
{
    return spec->value_dtype == PSRT_I32 || spec->value_dtype == PSRT_I64;
}

static const char *const codec_names[PSRTI_CODECS] = { "none", "f16", "bf16" };

static psrt_status_t set_codec(const char *text, psrti_table_spec_t *spec)
{
    size_t i = 0;
    while (text && i < PSRTI_CODECS && strcmp(text, codec_names[i]) != 0)
        i++;
    if (i == PSRTI_CODECS)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: codec \"%s\" is not none, f16 or bf16",
                          spec->name, text);
    if (i != PSRTI_CODEC_NONE && spec->value_dtype != PSRT_F32)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: codec %s is for f32 tables, this one is %s",
                          spec->name, text, psrt_dtype_name(spec->value_dtype));
    spec->codec = (psrti_codec_t)i;
    return PSRT_OK;
}

/* Integers start as integers: zeros, a constant that the type (and the text's double) holds, or what
 * worker 0 gives. */
static psrt_status_t check_integer_init(const psrti_init_t *init, const char *text,
                                        const psrti_table_spec_t *spec)
{
    double low = spec->value_dtype == PSRT_I32 ? INT32_MIN : -0x1p53;
    double high = spec->value_dtype == PSRT_I32 ? INT32_MAX : 0x1p53;
    double first;
    psrti_spec_t s;
    psrt_status_t rc = psrti_spec_parse("initializer", text, &s);
    if (rc) return rc;
    int fixed = strcmp(s.name, "zeros") == 0 || strcmp(s.name, "constant") == 0 ||
                psrti_init_is_rank0(init);
    psrti_init_fill(init, PSRT_F64, &first, 0, 1);
    if (fixed && first == floor(first) && first >= low && first <= high) return PSRT_OK;
    return psrti_fail(
        PSRT_ERR_INVALID,
        "table %s: init \"%s\": %s starts as zeros, rank0, or constant:value= with an "
        "integer from %.0f to %.0f",
        spec->name, text, psrt_dtype_name(spec->value_dtype), low, high);
}

static psrt_status_t set_init(const char *init, psrti_table_spec_t *spec)
{
    psrti_init_t *parsed;
    if (!init) init = "zeros";
    psrt_status_t rc = psrti_init_parse(init, spec->name, spec->ndim, spec->shape, &parsed);
    if (rc) return rc;
    if (is_integer(spec)) rc = check_integer_init(parsed, init, spec);
    psrti_init_destroy(parsed);
    if (rc) return rc;
    if (strlen(init) >= sizeof spec->init)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: the text of init is too long", spec->name);
    strcpy(spec->init, init);
    return PSRT_OK;
}

static psrt_status_t set_consistency(const char *text, psrti_table_spec_t *spec)
{
    static const char *const names[] = { "sync", "async", "ssp" };
    psrti_spec_t s;
    psrt_status_t rc = psrti_spec_parse("consistency", text ? text : "sync", &s);
    if (rc) return name_table(rc, spec);
    size_t i = 0;
    while (i < PSRTI_COUNT(names) && strcmp(s.name, names[i]) != 0)
        i++;
    if (i == PSRTI_COUNT(names)) {
        const char *near = psrti_nearest(s.name, names, PSRTI_COUNT(names));
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: consistency %s is not sync, async or ssp:s%s%s%s", spec->name,
                          s.name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    spec->consistency = (psrti_consistency_t)i;
    spec->staleness = spec->backup = 0;
    if (spec->consistency != PSRTI_SSP && s.count == 0) return PSRT_OK;
    const char *key = spec->consistency == PSRTI_SYNC ? "backup" : "";
    int64_t n;
    if (spec->consistency != PSRTI_ASYNC && s.count == 1 && strcmp(s.entry[0].key, key) == 0 &&
        psrti_parse_i64(s.entry[0].value, 0, MAX_WAIT, &n) == PSRT_OK) {
        *(spec->consistency == PSRTI_SYNC ? &spec->backup : &spec->staleness) = (uint32_t)n;
        return PSRT_OK;
    }
    return psrti_fail(
        PSRT_ERR_INVALID,
        "table %s: consistency \"%s\": write sync, sync:backup=b, async, or ssp:s, with "
        "b and s from 0 to %d",
        spec->name, text, MAX_WAIT);
}

static psrt_status_t set_reduce(const psrt_dense_params_t *p, psrti_table_spec_t *spec)
{
    const char *r = p->reduce ? p->reduce : is_integer(spec) ? "sum" : "average";
    if (strcmp(r, "average") != 0 && strcmp(r, "sum") != 0)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: reduce \"%s\" is not average or sum",
                          spec->name, r);
    spec->average = strcmp(r, "average") == 0;
    if (spec->average && is_integer(spec))
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: reduce average of %s is not exact, integers are summed",
                          spec->name, psrt_dtype_name(spec->value_dtype));
    spec->deterministic = p->deterministic != 0;
    if (spec->deterministic && spec->consistency != PSRTI_SYNC)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: deterministic needs consistency sync",
                          spec->name);
    if (spec->deterministic && spec->backup)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: deterministic does not go with backup workers: which of them "
                          "are in a sum depends on their speed",
                          spec->name);
    return PSRT_OK;
}

/* A two-phase optimizer waits for a fact about the whole table, so there must be steps of the whole
 * table, each the sum of one set of workers. */
static psrt_status_t check_two_phase(const psrti_optimizer_t *opt, const psrti_table_spec_t *spec)
{
    if (!psrti_optimizer_two_phase(opt)) return PSRT_OK;
    if (spec->consistency != PSRTI_SYNC)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: optimizer %s needs consistency sync: its updates depend on "
                          "the gradient of the whole table",
                          spec->name, spec->optimizer);
    if (spec->backup)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "table %s: optimizer %s does not go with backup workers: each slice would "
            "have the gradient of other workers, and their norm that of none",
            spec->name, spec->optimizer);
    return PSRT_OK;
}

static psrt_status_t set_group(const char *group, psrti_table_spec_t *spec)
{
    psrti_optimizer_t opt;
    if (!group || !*group) return PSRT_OK;
    if (strlen(group) > PSRTI_NAME_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: the name of a group has at most %d bytes",
                          spec->name, PSRTI_NAME_MAX);
    psrt_status_t rc = psrti_optimizer_parse(spec->optimizer, &opt);
    if (rc) return name_table(rc, spec);
    if (opt.clip_norm == 0 && opt.skip_nonfinite == 0)
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: group %s: tables share clip_norm and skip_nonfinite, and "
                          "optimizer %s has neither: give it one of them, or no group",
                          spec->name, group, spec->optimizer);
    strcpy(spec->group, group);
    return PSRT_OK;
}

/* Does the optimizer go with the table's other properties? */
static psrt_status_t check_optimizer(const psrti_optimizer_t *opt, const psrti_table_spec_t *spec)
{
    if (is_integer(spec) && strcmp(spec->optimizer, "none") != 0)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: optimizer %s: %s tables have none",
                          spec->name, spec->optimizer, psrt_dtype_name(spec->value_dtype));
    return check_two_phase(opt, spec);
}

psrt_status_t psrti_table_spec_optimizer(const psrti_table_spec_t *spec, psrti_optimizer_t *opt_p)
{
    psrt_status_t rc = psrti_optimizer_parse(spec->optimizer, opt_p);
    return rc ? name_table(rc, spec) : check_optimizer(opt_p, spec);
}

/* After the consistency. */
static psrt_status_t set_optimizer(const char *text, psrti_table_spec_t *spec)
{
    psrti_optimizer_t opt;
    psrt_status_t rc = psrti_optimizer_parse(text, &opt);
    if (!rc) rc = psrti_optimizer_format(&opt, spec->optimizer, sizeof spec->optimizer);
    return rc ? name_table(rc, spec) : check_optimizer(&opt, spec);
}

int psrti_table_spec_averages(const psrti_table_spec_t *spec)
{
    psrti_optimizer_t opt;
    return psrti_optimizer_parse(spec->optimizer, &opt) == PSRT_OK && opt.ema > 0;
}

psrt_status_t psrti_table_spec_make(const char *name, const psrt_dense_params_t *params,
                                    psrti_table_spec_t *spec)
{
    if (!name || !*name || strlen(name) > PSRTI_NAME_MAX)
        return psrti_fail(PSRT_ERR_INVALID, "a table's name has 1 to %d bytes", PSRTI_NAME_MAX);
    if (!params || params->size != sizeof *params)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: params must start as PSRT_DENSE_PARAMS_INIT",
                          name);
    psrti_table_spec_t s = { .ndim = 0 };
    strcpy(s.name, name);
    psrt_status_t rc = set_dtype(params, &s);
    if (!rc) rc = set_codec(params->codec, &s);
    if (!rc) rc = set_shape(params, &s);
    if (!rc) rc = set_init(params->init, &s);
    if (!rc) rc = set_consistency(params->consistency, &s);
    if (!rc) rc = set_optimizer(params->optimizer, &s);
    if (!rc) rc = set_group(params->group, &s);
    if (!rc) rc = set_reduce(params, &s);
    if (!rc) *spec = s;
    return rc;
}

/* ---- comparing --------------------------------------------------------------------------------- */

static void shape_text(const psrti_table_spec_t *s, char *buf, size_t size)
{
    size_t pos = 0;
    psrti_append(buf, size, &pos, "[");
    for (int i = 0; i < s->ndim; i++)
        psrti_append(buf, size, &pos, "%s%" PRIu64, i ? "," : "", s->shape[i]);
    psrti_append(buf, size, &pos, "]");
}

static void consistency_text(const psrti_table_spec_t *s, char *buf, size_t size)
{
    if (s->consistency == PSRTI_SSP)
        snprintf(buf, size, "ssp:%u", s->staleness);
    else if (s->backup)
        snprintf(buf, size, "sync:backup=%u", s->backup);
    else
        snprintf(buf, size, "%s", s->consistency == PSRTI_SYNC ? "sync" : "async");
}

psrt_status_t psrti_table_spec_compare(const psrti_table_spec_t *a, const char *a_who,
                                       const psrti_table_spec_t *b, const char *b_who, char *why,
                                       size_t why_size)
{
    char ta[sizeof a->optimizer], tb[sizeof b->optimizer];
    const char *field = NULL;
#define DIFFERS(name, cond, fill_a, fill_b)                                                        \
    if (!field && (cond)) {                                                                        \
        field = name;                                                                              \
        fill_a;                                                                                    \
        fill_b;                                                                                    \
    }
    DIFFERS("dtype", a->value_dtype != b->value_dtype,
            snprintf(ta, sizeof ta, "%s", psrt_dtype_name(a->value_dtype)),
            snprintf(tb, sizeof tb, "%s", psrt_dtype_name(b->value_dtype)))
    DIFFERS("shape", a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof a->shape) != 0,
            shape_text(a, ta, sizeof ta), shape_text(b, tb, sizeof tb))
    DIFFERS("init", strcmp(a->init, b->init) != 0, snprintf(ta, sizeof ta, "%s", a->init),
            snprintf(tb, sizeof tb, "%s", b->init))
    DIFFERS("optimizer", strcmp(a->optimizer, b->optimizer) != 0, strcpy(ta, a->optimizer),
            strcpy(tb, b->optimizer))
    DIFFERS("consistency",
            a->consistency != b->consistency || a->staleness != b->staleness ||
                a->backup != b->backup,
            consistency_text(a, ta, sizeof ta), consistency_text(b, tb, sizeof tb))
    DIFFERS("reduce", a->average != b->average, strcpy(ta, a->average ? "average" : "sum"),
            strcpy(tb, b->average ? "average" : "sum"))
    DIFFERS("deterministic", a->deterministic != b->deterministic,
            strcpy(ta, a->deterministic ? "1" : "0"), strcpy(tb, b->deterministic ? "1" : "0"))
    DIFFERS("codec", a->codec != b->codec, strcpy(ta, codec_names[a->codec]),
            strcpy(tb, codec_names[b->codec]))
    DIFFERS("group", strcmp(a->group, b->group) != 0, strcpy(ta, *a->group ? a->group : "none"),
            strcpy(tb, *b->group ? b->group : "none"))
#undef DIFFERS
    if (!field) return PSRT_OK;
    snprintf(why, why_size, "table %s: %s is %s on %s, but %s on %s", a->name, field, ta, a_who, tb,
             b_who);
    return PSRT_ERR_MISMATCH;
}

/* The optimizer, or what a task without its plug-in knows of it: only workers and servers need a plug-in,
 * and find out where they can say so. */
static psrt_status_t known_part(const psrti_table_spec_t *s, char *text, size_t size)
{
    psrti_optimizer_t opt;
    if (psrti_optimizer_is_builtin(s->optimizer, strcspn(s->optimizer, ":"))) {
        snprintf(text, size, "%s", s->optimizer);
        return PSRT_OK;
    }
    psrt_status_t rc = psrti_optimizer_parse_common(s->optimizer, &opt);
    if (!rc) rc = psrti_optimizer_format(&opt, text, size);
    return name_table(rc, s);
}

psrt_status_t psrti_table_spec_check(const psrti_table_spec_t *s)
{
    char consistency[32], optimizer[sizeof s->optimizer];
    if (memchr(s->name, 0, sizeof s->name) == NULL || memchr(s->init, 0, sizeof s->init) == NULL ||
        memchr(s->optimizer, 0, sizeof s->optimizer) == NULL ||
        memchr(s->group, 0, sizeof s->group) == NULL || s->consistency > PSRTI_SSP ||
        s->codec >= PSRTI_CODECS || (s->backup && s->consistency != PSRTI_SYNC))
        return psrti_fail(PSRT_ERR_PROTOCOL, "malformed table specification");
    consistency_text(s, consistency, sizeof consistency);
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.dtype = s->value_dtype;
    p.ndim = s->ndim;
    memcpy(p.shape, s->shape, sizeof p.shape);
    p.init = s->init;
    p.optimizer = optimizer;
    p.consistency = consistency;
    p.reduce = s->average ? "average" : "sum";
    p.deterministic = s->deterministic;
    p.codec = codec_names[s->codec];
    p.group = s->group;
    psrti_table_spec_t made;
    psrt_status_t rc = known_part(s, optimizer, sizeof optimizer);
    if (!rc) rc = psrti_table_spec_make(s->name, &p, &made);
    if (rc) return rc;
    if (made.elements != s->elements || s->grad_dtype != made.grad_dtype ||
        s->acc_dtype != made.acc_dtype)
        return psrti_fail(PSRT_ERR_PROTOCOL, "table %s: malformed specification", s->name);
    return PSRT_OK;
}

/* ---- groups ------------------------------------------------------------------------------------ */

uint16_t psrti_table_spec_group_vshard(const psrti_table_spec_t *s, uint32_t nvshards)
{
    const char *name = *s->group ? s->group : s->name;
    return psrti_slice_vshard(psrti_hash_bytes(name, strlen(name)), 0, nvshards);
}

psrt_status_t psrti_table_spec_match(const psrti_table_spec_t *a, const psrti_table_spec_t *b,
                                     char *why, size_t why_size)
{
    psrti_optimizer_t x, y;
    if (psrti_optimizer_parse_common(a->optimizer, &x) != PSRT_OK ||
        psrti_optimizer_parse_common(b->optimizer, &y) != PSRT_OK)
        return PSRT_ERR_MISMATCH;
    int clip = x.clip_norm != y.clip_norm;
    if (!clip && x.skip_nonfinite == y.skip_nonfinite) return PSRT_OK;
    snprintf(why, why_size, "group %s: %s is %.17g for table %s, but %.17g for table %s", a->group,
             clip ? "clip_norm" : "skip_nonfinite", clip ? x.clip_norm : x.skip_nonfinite, a->name,
             clip ? y.clip_norm : y.skip_nonfinite, b->name);
    return PSRT_ERR_MISMATCH;
}
