/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with a fusion, driven by lines on stdin as agent.c is.
 *
 *   create | destroy | quit
 *   fusion BYTES CYCLE_US            of all workers
 *   free | flush
 *   query                            "tensors=T buckets=B sent=S rounds=R status=S"
 *   steps SEED FROM TO SET THREADS   steps FROM to TO-1 of the tensors of SET, each step in an order of this rank's own, by
 *                                    so many threads, each result checked; SET: all, thirds (without every third), or
 *                                    moving (another set in each step); a + behind it: flush at the end of each step
 *   submit NAME COUNT DTYPE REDOP    answers at once
 *   wait [MS]                        all that was submitted so; the answer is the first failure
 *   cancel                           the last that was submitted */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/fusion.h>

#define TENSORS 60
#define OPS 64
#define THREADS 4

typedef struct tensor {
    char name[24];
    uint64_t count;
    psrt_dtype_t dtype;
    psrt_redop_t redop;
    void *in, *out;
    psrt_op_t *op;
} tensor_t;

static psrt_context_t *ctx;
static psrt_comm_t *comm;
static psrt_fusion_t *fusion;
static uint32_t rank, ranks;
static tensor_t tensors[TENSORS];

static psrt_op_t *ops[OPS];
static void *op_memory[OPS];
static int nops;

static void answer(psrt_status_t status, const char *text)
{
    if (status == PSRT_OK)
        printf("ok %s\n", text ? text : "");
    else
        printf("err %s %s\n", psrt_status_name(status), text ? text : psrt_last_error());
    fflush(stdout);
}

/* ---- values: small integers, which all types and orders of summation have exactly --------------- */

static int value(uint32_t of_rank, uint32_t tensor, uint64_t i, uint32_t step)
{
    return (int)((i * 5 + of_rank * 3 + tensor * 7 + step * 11) % 13);
}

static void put(const tensor_t *t, void *buf, uint64_t i, double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (t->dtype) {
    case PSRT_F32: ((float *)buf)[i] = f; break;
    case PSRT_F64: ((double *)buf)[i] = v; break;
    case PSRT_BF16: ((uint16_t *)buf)[i] = (uint16_t)(bits >> 16); break;
    default: ((int32_t *)buf)[i] = (int32_t)v; break;
    }
}

static double expected(const tensor_t *t, uint32_t k, uint64_t i, uint32_t step)
{
    int sum = 0, max = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        int v = value(r, k, i, step);
        sum += v;
        max = v > max ? v : max;
    }
    return t->redop == PSRT_MAX ? max : t->redop == PSRT_AVG && ranks ? sum / (int)ranks : sum;
}

static int check(const tensor_t *t, uint32_t k, uint32_t step, char *text, size_t size)
{
    size_t width = psrt_dtype_size(t->dtype);
    for (uint64_t i = 0; i < t->count; i++) {
        double want = expected(t, k, i, step);
        char one[8];
        put(t, one, 0, want);
        if (memcmp((char *)t->out + i * width, one, width) == 0) continue;
        snprintf(text, size, "step %u: element %" PRIu64 " of %s is not %g", step, i, t->name,
                 want);
        return 0;
    }
    return 1;
}

static void make_tensors(void)
{
    static const uint64_t counts[] = { 0, 1, 3, 64, 700, 5000, 33, 40000 };
    for (uint32_t k = 0; k < TENSORS; k++) {
        tensor_t *t = &tensors[k];
        snprintf(t->name, sizeof t->name, "layer%u.weight", k);
        t->count = counts[k % 8] + k;
        t->dtype = k % 5 == 0    ? PSRT_BF16
                   : k % 7 == 0  ? PSRT_I32
                   : k % 11 == 0 ? PSRT_F64
                                 : PSRT_F32;
        t->redop = k % 7 == 0 && k % 5 ? PSRT_AVG : k % 13 == 0 ? PSRT_MAX : PSRT_SUM;
        uint64_t bytes = (t->count + 1) * psrt_dtype_size(t->dtype);
        t->in = k % 2 ? psrt_alloc(ctx, bytes) : malloc(bytes);
        t->out = k % 3 ? malloc(bytes) : t->in;
        if (!t->in || !t->out) abort();
    }
}

static void free_tensors(void)
{
    for (uint32_t k = 0; k < TENSORS; k++) {
        tensor_t *t = &tensors[k];
        if (t->out != t->in) free(t->out);
        if (k % 2)
            psrt_free(ctx, t->in);
        else
            free(t->in);
        *t = (tensor_t){ .count = 0 };
    }
}

/* ---- steps ------------------------------------------------------------------------------------- */

typedef struct part {
    pthread_t thread;
    const uint32_t *order;
    uint32_t begin, end;
    psrt_status_t rc;
    char text[1024];
} part_t;

static int is_in(const char *set, uint32_t step, uint32_t k)
{
    if (set[0] == 't') return k % 3 != 0;
    if (set[0] == 'm') return (step * 7 + k * 5) % 11 < 6;
    return 1;
}

static void *submit_part(void *arg)
{
    part_t *p = arg;
    for (uint32_t i = p->begin; i < p->end; i++) {
        tensor_t *t = &tensors[p->order[i]];
        psrt_status_t rc = psrt_fusion_allreduce(fusion, t->name, t->in, t->out, t->count, t->dtype,
                                                 t->redop, &t->op);
        if (rc && !p->rc) {
            p->rc = rc;
            snprintf(p->text, sizeof p->text, "%s", psrt_last_error());
        }
    }
    return NULL;
}

static psrt_status_t submit_all(const uint32_t *order, uint32_t n, uint32_t threads, char *text,
                                size_t size)
{
    part_t parts[THREADS] = { { .begin = 0 } };
    psrt_status_t rc = PSRT_OK;
    for (uint32_t i = 0; i < threads; i++) {
        part_t *p = &parts[i];
        p->order = order;
        p->begin = n * i / threads;
        p->end = n * (i + 1) / threads;
        if (i + 1 == threads)
            submit_part(p);
        else if (pthread_create(&p->thread, NULL, submit_part, p))
            abort();
    }
    for (uint32_t i = 0; i < threads; i++) {
        if (i + 1 < threads) pthread_join(parts[i].thread, NULL);
        if (rc || !parts[i].rc) continue;
        rc = parts[i].rc;
        snprintf(text, size, "%s", parts[i].text);
    }
    return rc;
}

static psrt_status_t run_step(uint32_t step, const char *set, uint32_t threads, uint64_t *random,
                              char *text, size_t size)
{
    uint32_t order[TENSORS], n = 0;
    for (uint32_t k = 0; k < TENSORS; k++) {
        tensor_t *t = &tensors[k];
        t->op = NULL;
        if (!is_in(set, step, k)) continue;
        for (uint64_t i = 0; i < t->count; i++)
            put(t, t->in, i, value(rank, k, i, step));
        order[n++] = k;
    }
    for (uint32_t i = n; i > 1; i--) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        uint32_t k = (uint32_t)((*random >> 33) % i), other = order[k];
        order[k] = order[i - 1];
        order[i - 1] = other;
    }
    psrt_status_t rc = submit_all(order, n, threads, text, size);
    if (!rc && strchr(set, '+')) rc = psrt_fusion_flush(fusion);
    for (uint32_t i = 0; i < n; i++) {
        psrt_status_t end = psrt_op_wait(tensors[order[i]].op, PSRT_FOREVER);
        if (rc || !end) continue;
        rc = end;
        snprintf(text, size, "%s", psrt_last_error());
    }
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!check(&tensors[order[i]], order[i], step, text, size)) rc = PSRT_ERR_INTERNAL;
    return rc;
}

static void cmd_steps(const char *args)
{
    char set[16], text[1024] = "";
    uint32_t from, to, threads;
    uint64_t seed;
    psrt_status_t rc = PSRT_OK;
    if (sscanf(args, "%" SCNu64 " %u %u %15s %u", &seed, &from, &to, set, &threads) != 5 ||
        threads == 0 || threads > THREADS) {
        answer(PSRT_ERR_INVALID, "steps SEED FROM TO SET THREADS");
        return;
    }
    seed = seed * 1000 + rank;
    for (uint32_t step = from; step < to && !rc; step++)
        rc = run_step(step, set, threads, &seed, text, sizeof text);
    answer(rc, text);
}

/* ---- single ones ------------------------------------------------------------------------------- */

static psrt_dtype_t dtype_of(const char *name)
{
    for (int d = 1; d < 10; d++)
        if (strcmp(psrt_dtype_name((psrt_dtype_t)d), name) == 0) return (psrt_dtype_t)d;
    return PSRT_DTYPE_NONE;
}

static void cmd_submit(const char *args)
{
    char name[32], dtype[8], redop[8];
    uint64_t count;
    int op = 0;
    if (sscanf(args, "%31s %" SCNu64 " %7s %7s", name, &count, dtype, redop) != 4 || nops == OPS) {
        answer(PSRT_ERR_INVALID, "submit NAME COUNT DTYPE REDOP");
        return;
    }
    while (op <= PSRT_AVG && strcmp(psrt_redop_name((psrt_redop_t)op), redop) != 0)
        op++;
    void *memory = calloc(count ? count : 1, 8);
    if (!memory) abort();
    psrt_status_t rc = psrt_fusion_allreduce(fusion, name, memory, memory, count, dtype_of(dtype),
                                             (psrt_redop_t)op, &ops[nops]);
    if (rc)
        free(memory);
    else
        op_memory[nops++] = memory;
    answer(rc, NULL);
}

static void cmd_wait(const char *args)
{
    char text[1024] = "";
    uint64_t ms = 0;
    psrt_status_t rc = PSRT_OK;
    uint64_t timeout = sscanf(args, "%" SCNu64, &ms) == 1 ? ms * 1000000 : PSRT_FOREVER;
    int left = 0;
    for (int i = 0; i < nops; i++) {
        psrt_status_t end = psrt_op_wait(ops[i], timeout);
        if (!rc && end) {
            rc = end;
            snprintf(text, sizeof text, "%s", psrt_last_error());
        }
        if (end == PSRT_ERR_TIMEOUT && timeout != PSRT_FOREVER) {
            ops[left] = ops[i];
            op_memory[left++] = op_memory[i];
        } else {
            free(op_memory[i]);
        }
    }
    nops = left;
    answer(rc, text);
}

static void cmd_fusion(const char *args)
{
    psrt_fusion_params_t p = PSRT_FUSION_PARAMS_INIT;
    psrt_comm_attr_t attr = PSRT_COMM_ATTR_INIT;
    uint64_t us = 0;
    sscanf(args, "%" SCNu64 " %" SCNu64, &p.bucket_bytes, &us);
    p.cycle_ns = us * 1000;
    psrt_status_t rc = comm ? PSRT_OK : psrt_comm_create(ctx, NULL, &comm, NULL);
    if (!rc) rc = psrt_comm_query(comm, &attr);
    rank = attr.rank, ranks = attr.ranks;
    if (!rc) rc = psrt_fusion_create(comm, &p, &fusion, NULL);
    if (!rc && !tensors[0].in) make_tensors();
    answer(rc, NULL);
}

static void cmd_query(void)
{
    psrt_fusion_attr_t a = PSRT_FUSION_ATTR_INIT;
    char text[160];
    psrt_status_t rc = psrt_fusion_query(fusion, &a);
    snprintf(text, sizeof text,
             "tensors=%u buckets=%u sent=%" PRIu64 " rounds=%" PRIu64 " status=%s", a.tensors,
             a.buckets, a.sent, a.rounds, psrt_status_name(a.status));
    answer(rc, rc ? NULL : text);
}

static void destroy(void)
{
    if (tensors[0].in) free_tensors();
    psrt_context_destroy(ctx);
    for (int i = 0; i < nops; i++)
        free(op_memory[i]);
    nops = 0;
    ctx = NULL;
}

static void command(const char *line)
{
    char verb[16] = "";
    int used = 0;
    sscanf(line, "%15s %n", verb, &used);
    const char *args = line + used;
    if (strcmp(verb, "create") == 0) {
        answer(psrt_context_create(NULL, &ctx), NULL);
    } else if (strcmp(verb, "destroy") == 0) {
        destroy();
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "fusion") == 0) {
        cmd_fusion(args);
    } else if (strcmp(verb, "steps") == 0) {
        cmd_steps(args);
    } else if (strcmp(verb, "submit") == 0) {
        cmd_submit(args);
    } else if (strcmp(verb, "wait") == 0) {
        cmd_wait(args);
    } else if (strcmp(verb, "cancel") == 0) {
        if (nops) psrt_op_cancel(ops[nops - 1]);
        answer(PSRT_OK, NULL);
    } else if (strcmp(verb, "query") == 0) {
        cmd_query();
    } else if (strcmp(verb, "flush") == 0) {
        answer(psrt_fusion_flush(fusion), NULL);
    } else if (strcmp(verb, "free") == 0) {
        psrt_fusion_free(fusion);
        fusion = NULL;
        answer(PSRT_OK, NULL);
    } else {
        answer(PSRT_ERR_INVALID, "unknown command");
    }
}

int main(void)
{
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "quit", 4) == 0) break;
        command(line);
    }
    destroy();
    return 0;
}
