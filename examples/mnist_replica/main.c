/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training with parameter servers: every worker holds a replica of the model, pushes
 * the gradients of its own images, and pulls the weights that the servers made of all workers'
 * gradients.
 *
 * A step, and what overlaps in it (w: wait, pp: push_pull):
 *
 *   gather | w fc1, forward fc1 | w fc2, forward fc2 | backward fc2, pp fc2 | backward fc1, pp fc1
 *
 * fc2 travels while fc1's gradient is computed and, if need be, during the next step's forward pass
 * of fc1. fc1 has the higher priority: it is needed first.
 *
 * Steps have the same number on every worker. One that was restarted in its place goes on with the step
 * that the job has come to, one that was too late (--consistency sync:backup=1) with a later one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "data.h"
#include "half.h"
#include "mlp.h"
#include "options.h"
#include "progress.h"

#define SLICE_ELEMENTS ((uint64_t)1 << 18) /* the unit in which tables are spread over servers */
#define EVAL_ROWS 500

enum { FC1_WEIGHT, FC1_BIAS, FC2_WEIGHT, FC2_BIAS, TABLES };

typedef struct param {
    psrt_table_t *table;
    void *value_sent, *grad_sent; /* psrt_alloc: the servers read and write them without copies */
    float *value, *grad;          /* f32: the same memory; else what is computed with           */
    float *initial;
    uint64_t count;
} param_t;

static const struct {
    const char *name, *init;
    int ndim;
    uint64_t shape[2];
} specs[TABLES] = {
    [FC1_WEIGHT] = { "fc1/weight", "he", 2, { MLP_INPUTS, MLP_HIDDEN } },
    [FC1_BIAS] = { "fc1/bias", "zeros", 1, { MLP_HIDDEN } },
    [FC2_WEIGHT] = { "fc2/weight", "glorot", 2, { MLP_HIDDEN, MLP_CLASSES } },
    [FC2_BIAS] = { "fc2/bias", "zeros", 1, { MLP_CLASSES } },
};

typedef struct trainer {
    options_t options;
    psrt_context_t *ctx;
    uint32_t rank, workers;
    uint64_t first_step; /* above 0: this worker came when the others had begun */
    uint64_t epoch;      /* of `order` */
    param_t param[TABLES];
    psrt_op_t *fc1, *fc2; /* the push_pull of a layer that is under way, or NULL */
    data_t train;
    uint32_t *order; /* of this epoch's images */
    float *images;   /* this step's batch      */
    uint8_t *labels;
    mlp_t net;
} trainer_t;

static int fail(const char *what, const char *text)
{
    fprintf(stderr, "mnist_replica: %s: %s\n", what, text);
    return -1;
}

/* The error of a library call as -1 with a message, OK as 0. */
static int check(psrt_status_t status, const char *what)
{
    return status == PSRT_OK ? 0 : fail(what, psrt_last_error());
}

/* Tables of 16 bits: from and to the f32 that the network computes with. */
static void unpack_value(const trainer_t *t, const param_t *p)
{
    if (t->options.dtype == PSRT_F16) half_from_f16(p->value_sent, p->value, p->count);
    if (t->options.dtype == PSRT_BF16) half_from_bf16(p->value_sent, p->value, p->count);
}

static void pack_grad(const trainer_t *t, const param_t *p)
{
    if (t->options.dtype == PSRT_F16) half_to_f16(p->grad, p->grad_sent, p->count);
    if (t->options.dtype == PSRT_BF16) half_to_bf16(p->grad, p->grad_sent, p->count);
}

/* The end of a layer's push_pull, if one is under way. */
static int wait_for(const trainer_t *t, psrt_op_t **op, int first_table, const char *what)
{
    if (!*op) return 0;
    psrt_status_t status = psrt_op_wait(*op, PSRT_FOREVER);
    *op = NULL;
    if (check(status, what)) return -1;
    for (int i = 0; i < 2; i++)
        unpack_value(t, &t->param[first_table + i]);
    return 0;
}

/* ---- start ---------------------------------------------------------------------------------- */

static int create_tables(trainer_t *t)
{
    psrt_dense_params_t params[TABLES];
    const char *names[TABLES];
    char init[TABLES][32];
    psrt_table_t *tables[TABLES];
    for (int i = 0; i < TABLES; i++) {
        params[i] = (psrt_dense_params_t)PSRT_DENSE_PARAMS_INIT;
        params[i].dtype = t->options.dtype;
        params[i].ndim = specs[i].ndim;
        memcpy(params[i].shape, specs[i].shape, sizeof specs[i].shape);
        int random = strcmp(specs[i].init, "zeros") != 0;
        snprintf(init[i], sizeof init[i], random ? "%s:seed=%llu" : "%s", specs[i].init,
                 (unsigned long long)t->options.seed);
        params[i].init = init[i];
        params[i].optimizer = t->options.optimizer;
        params[i].consistency = t->options.consistency;
        params[i].deterministic = t->options.deterministic;
        names[i] = specs[i].name;
    }
    if (check(psrt_dense_create_many(t->ctx, TABLES, names, params, tables), "tables")) return -1;
    for (int i = 0; i < TABLES; i++)
        t->param[i].table = tables[i];
    return 0;
}

static int pull_all(trainer_t *t, const char *what)
{
    psrt_request_t requests[TABLES];
    for (int i = 0; i < TABLES; i++) {
        requests[i] = (psrt_request_t)PSRT_REQUEST_INIT;
        requests[i].table = t->param[i].table;
        requests[i].value = t->param[i].value_sent;
    }
    if (check(psrt_submit(t->ctx, requests, TABLES, NULL, NULL), what)) return -1;
    for (int i = 0; i < TABLES; i++)
        unpack_value(t, &t->param[i]);
    return 0;
}

static int alloc_param(trainer_t *t, param_t *p)
{
    uint64_t sent = p->count * psrt_dtype_size(t->options.dtype), bytes = p->count * sizeof(float);
    int separate = t->options.dtype != PSRT_F32;
    p->value_sent = psrt_alloc(t->ctx, sent);
    p->grad_sent = psrt_alloc(t->ctx, sent);
    if (!p->value_sent || !p->grad_sent) return fail("memory", psrt_last_error());
    p->value = separate ? malloc(bytes) : p->value_sent;
    p->grad = separate ? malloc(bytes) : p->grad_sent;
    p->initial = malloc(bytes);
    return p->value && p->grad && p->initial ? 0 : fail("memory", "out of memory");
}

static int create_params(trainer_t *t)
{
    if (create_tables(t)) return -1;
    for (int i = 0; i < TABLES; i++) {
        t->param[i].count = specs[i].shape[0] * (specs[i].ndim == 2 ? specs[i].shape[1] : 1);
        if (alloc_param(t, &t->param[i])) return -1;
    }
    if (pull_all(t, "initial weights")) return -1;
    for (int i = 0; i < TABLES; i++)
        memcpy(t->param[i].initial, t->param[i].value, t->param[i].count * sizeof(float));
    return 0;
}

static int load_data(trainer_t *t)
{
    char error[4200];
    const options_t *o = &t->options;
    if (data_load(o->data, "train", o->train_limit, &t->train, error, sizeof error))
        return fail("training images", error);
    if ((uint64_t)o->batch * t->workers > t->train.count)
        return fail("training images", "fewer than one batch for each worker");
    t->order = malloc(t->train.count * sizeof *t->order);
    t->images = malloc((size_t)o->batch * MLP_INPUTS * sizeof *t->images);
    t->labels = malloc(o->batch);
    if (!t->order || !t->images || !t->labels || mlp_init(&t->net, o->batch))
        return fail("training images", "out of memory");
    return 0;
}

static int start(trainer_t *t)
{
    psrt_context_attr_t attr = PSRT_CONTEXT_ATTR_INIT;
    if (check(psrt_context_create(NULL, &t->ctx), "start")) return -1;
    if (check(psrt_context_query(t->ctx, &attr), "start")) return -1;
    t->rank = attr.rank;
    t->workers = attr.workers;
    if (load_data(t) || create_params(t)) return -1;
    if (t->rank == 0 && !t->options.quiet)
        printf("%u worker%s, %u server%s%s, %u training images\n", attr.workers,
               attr.workers == 1 ? "" : "s", attr.servers, attr.servers == 1 ? "" : "s",
               attr.embedded ? " (embedded)" : "", t->train.count);
    return 0;
}

/* ---- training ------------------------------------------------------------------------------- */

/* The step to which a push to the table would belong. */
static uint64_t step_of(const param_t *p)
{
    psrt_table_attr_t attr = PSRT_TABLE_ATTR_INIT;
    psrt_table_query(p->table, &attr);
    return attr.step;
}

/* The lowest of the tables: who came late may be a little further on some of them. */
static uint64_t next_step(const trainer_t *t)
{
    uint64_t step = step_of(&t->param[0]);
    for (int i = 1; i < TABLES; i++) {
        uint64_t other = step_of(&t->param[i]);
        if (other < step) step = other;
    }
    return step;
}

/* A table that is ahead of this step gets its gradient later; its values are pulled. */
static int push_pull_layer(trainer_t *t, uint64_t step, int first_table, int priority,
                           psrt_op_t **op_p)
{
    psrt_request_t requests[2];
    for (int i = 0; i < 2; i++) {
        const param_t *p = &t->param[first_table + i];
        requests[i] = (psrt_request_t)PSRT_REQUEST_INIT;
        requests[i].table = p->table;
        pack_grad(t, p);
        requests[i].value = p->value_sent;
        requests[i].priority = priority;
        if (step_of(p) == step)
            requests[i].grad = p->grad_sent;
        else
            requests[i].step = step + 1;
    }
    return check(psrt_submit(t->ctx, requests, 2, NULL, op_p), specs[first_table].name);
}

/* The images of a step are consecutive in the epoch's order, worker after worker: one worker with a
 * batch of 2 B sees in each step what two workers with B each see. */
static void gather(trainer_t *t, uint64_t step, uint64_t steps_per_epoch)
{
    uint64_t in_epoch = step % steps_per_epoch, epoch = step / steps_per_epoch;
    if (epoch != t->epoch || step == t->first_step)
        data_shuffle(t->order, t->train.count, t->options.seed, epoch);
    t->epoch = epoch;
    uint64_t first = (in_epoch * t->workers + t->rank) * t->options.batch;
    data_gather(&t->train, t->order + first, t->options.batch, t->images, t->labels);
}

static int train_step(trainer_t *t, uint64_t step, double *loss_p)
{
    param_t *p = t->param;
    size_t rows = t->options.batch;
    if (wait_for(t, &t->fc1, FC1_WEIGHT, "fc1")) return -1;
    mlp_forward_hidden(&t->net, rows, t->images, p[FC1_WEIGHT].value, p[FC1_BIAS].value);
    if (wait_for(t, &t->fc2, FC2_WEIGHT, "fc2")) return -1;
    mlp_forward_output(&t->net, rows, p[FC2_WEIGHT].value, p[FC2_BIAS].value);
    double loss = mlp_loss(&t->net, rows, t->labels);
    if (!isfinite(loss)) return fail("training", "the loss is not finite; try a lower lr");
    mlp_backward_output(&t->net, rows, p[FC2_WEIGHT].value, p[FC2_WEIGHT].grad, p[FC2_BIAS].grad);
    if (push_pull_layer(t, step, FC2_WEIGHT, 0, &t->fc2)) return -1;
    mlp_backward_hidden(&t->net, rows, t->images, p[FC1_WEIGHT].grad, p[FC1_BIAS].grad);
    if (push_pull_layer(t, step, FC1_WEIGHT, 1, &t->fc1)) return -1;
    *loss_p = loss;
    return 0;
}

static int train(trainer_t *t)
{
    const options_t *o = &t->options;
    uint64_t images_per_step = (uint64_t)o->batch * t->workers;
    uint64_t steps_per_epoch = t->train.count / images_per_step;
    uint64_t total = o->steps ? o->steps : o->epochs * steps_per_epoch;
    progress_t progress;
    progress_start(&progress, t->ctx, total, steps_per_epoch, images_per_step,
                   t->rank == 0 && !o->quiet);
    t->first_step = next_step(t);
    if (t->first_step && !o->quiet) {
        printf("worker %u goes on with step %llu\n", t->rank, (unsigned long long)t->first_step);
        fflush(stdout);
    }
    for (uint64_t step = t->first_step; step < total; step = next_step(t)) {
        double loss = 0;
        gather(t, step, steps_per_epoch);
        if (train_step(t, step, &loss)) return -1;
        progress_step(&progress, step + 1, loss);
    }
    if (wait_for(t, &t->fc1, FC1_WEIGHT, "fc1") || wait_for(t, &t->fc2, FC2_WEIGHT, "fc2"))
        return -1;
    progress_end(&progress);
    return 0;
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Every slice of every table must have been trained: one that still has its initial values means
 * that its server took gradients and applied none of them. Who came late may have seen no step. */
static int check_trained(const trainer_t *t)
{
    if (t->first_step) return 0;
    for (int i = 0; i < TABLES; i++) {
        const param_t *p = &t->param[i];
        for (uint64_t at = 0; at < p->count; at += SLICE_ELEMENTS) {
            uint64_t count = p->count - at < SLICE_ELEMENTS ? p->count - at : SLICE_ELEMENTS;
            if (memcmp(p->value + at, p->initial + at, count * sizeof(float)) != 0) continue;
            char text[96];
            snprintf(text, sizeof text, "elements %llu to %llu were not changed by training",
                     (unsigned long long)at, (unsigned long long)(at + count - 1));
            return fail(specs[i].name, text);
        }
        for (uint64_t k = 0; k < p->count; k++)
            if (!isfinite(p->value[k])) return fail(specs[i].name, "a weight is not finite");
    }
    return 0;
}

static int save(const trainer_t *t)
{
    FILE *file = fopen(t->options.save, "wb");
    int failed = !file;
    for (int i = 0; i < TABLES && !failed; i++) {
        const param_t *p = &t->param[i];
        failed = fwrite(p->value, sizeof(float), p->count, file) != p->count;
    }
    if (file && fclose(file)) failed = 1;
    if (!failed) return 0;
    perror("mnist_replica: --save");
    return -1;
}

static int count_correct(const trainer_t *t, const data_t *test, mlp_t *net, size_t *correct_p)
{
    const param_t *p = t->param;
    float *images = malloc(EVAL_ROWS * MLP_INPUTS * sizeof *images);
    uint8_t labels[EVAL_ROWS];
    uint32_t order[EVAL_ROWS];
    if (!images) return fail("test images", "out of memory");
    *correct_p = 0;
    for (uint32_t at = 0; at < test->count; at += EVAL_ROWS) {
        uint32_t rows = test->count - at < EVAL_ROWS ? test->count - at : EVAL_ROWS;
        for (uint32_t r = 0; r < rows; r++)
            order[r] = at + r;
        data_gather(test, order, rows, images, labels);
        mlp_forward_hidden(net, rows, images, p[FC1_WEIGHT].value, p[FC1_BIAS].value);
        mlp_forward_output(net, rows, p[FC2_WEIGHT].value, p[FC2_BIAS].value);
        *correct_p += mlp_correct(net, rows, labels);
    }
    free(images);
    return 0;
}

static int evaluate(const trainer_t *t, double *accuracy_p)
{
    char error[4200];
    data_t test;
    mlp_t net;
    size_t correct = 0;
    if (data_load(t->options.data, "t10k", 0, &test, error, sizeof error))
        return fail("test images", error);
    int result = mlp_init(&net, EVAL_ROWS) ? fail("test images", "out of memory") : 0;
    if (!result) {
        result = count_correct(t, &test, &net, &correct);
        if (!result) *accuracy_p = (double)correct / test.count;
        mlp_free(&net);
    }
    data_free(&test);
    return result;
}

/* The first barrier: all gradients are in, so that everybody pulls the same final weights. The
 * second: nobody leaves while another still works. */
static int finish(trainer_t *t, double *accuracy_p)
{
    if (check(psrt_barrier(t->ctx, "trained", 0, PSRT_FOREVER), "barrier") ||
        pull_all(t, "final weights") || check_trained(t))
        return -1;
    if (t->rank == 0 && t->options.save && save(t)) return -1;
    if (t->rank == 0 && evaluate(t, accuracy_p)) return -1;
    return check(psrt_barrier(t->ctx, "evaluated", 0, PSRT_FOREVER), "barrier");
}

static void release(trainer_t *t)
{
    psrt_context_destroy(t->ctx); /* first: operations may still use the buffers */
    for (int i = 0; i < TABLES; i++) {
        param_t *p = &t->param[i];
        if (p->value != p->value_sent) free(p->value);
        if (p->grad != p->grad_sent) free(p->grad);
        free(p->initial);
    }
    data_free(&t->train);
    mlp_free(&t->net);
    free(t->order);
    free(t->images);
    free(t->labels);
}

int main(int argc, char **argv)
{
    trainer_t trainer = { 0 };
    double accuracy = 0;
    int code = options_parse(argc, argv, &trainer.options);
    if (code != OPTIONS_RUN) return code;
    int failed = start(&trainer) || train(&trainer) || finish(&trainer, &accuracy);
    uint32_t rank = trainer.rank;
    release(&trainer);
    if (failed) return 1;
    if (rank == 0) printf("test accuracy: %.4f\n", accuracy);
    return 0;
}
