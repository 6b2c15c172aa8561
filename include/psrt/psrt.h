/* SPDX-License-Identifier: Apache-2.0 */
/**
 * libpsrt: an embeddable parameter-server runtime.
 *
 * A trainer creates a context, declares its parameters as tables, pushes gradients and pulls values.
 * Launched by psrt-launch it runs distributed; alone it runs an embedded server in the process.
 *
 * Conventions that hold everywhere:
 *  - Functions return a psrt_status_t; outputs come last, are named `_p`, and are written only on
 *    success. psrt_last_error() gives the text of this thread's last failure.
 *  - Parameter structs start with `size`, set by their _INIT macro; a zero field means the default.
 *  - Sizes, counts and offsets are 64-bit; counts are elements unless the name says bytes; times are
 *    nanoseconds of the monotonic clock.
 *  - The library never aborts, exits, writes to stdout or installs signal handlers.
 *  - A context may be used from several threads at once, if not stated otherwise. It does not survive
 *    fork(): a child must neither use nor destroy it, and may only exec or _exit.
 *  - In a callback, calls that do not block work; those that would wait return ERR_INVALID.
 */
#ifndef PSRT_PSRT_H
#define PSRT_PSRT_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* the library is built with hidden visibility */

#define PSRT_VERSION_MAJOR 0
#define PSRT_VERSION_MINOR 1
#define PSRT_VERSION_PATCH 0
#define PSRT_VERSION_STRING "0.1.0"

typedef struct psrt_context psrt_context_t;
typedef struct psrt_table psrt_table_t;
typedef struct psrt_op psrt_op_t;

#define PSRT_FOREVER UINT64_MAX
#define PSRT_MAX_DIMS 8
#define PSRT_STEP_NEXT UINT64_MAX

/* ---- version, errors, log ---------------------------------------------------------------------- */

/**
 * Version of the library that is loaded, "major.minor.patch".
 * @return static string
 * @threads any  @blocks no  @since 0.1
 */
const char *psrt_version(void);

/**
 * Text of the last failure on the calling thread.
 * A failed op's text is copied to the thread that waits for it.
 * @return never NULL; "" if nothing failed yet; valid until the next failing call of this thread
 * @threads any  @blocks no  @since 0.1
 */
const char *psrt_last_error(void);

typedef enum psrt_log_level {
    PSRT_LOG_ERROR,
    PSRT_LOG_WARN,
    PSRT_LOG_INFO,
    PSRT_LOG_DEBUG
} psrt_log_level_t;

/** Receives one line without newline. Called from any thread; must not call back into libpsrt. */
typedef void (*psrt_log_fn)(void *arg, psrt_log_level_t level, const char *line);

/**
 * Replaces the log sink of the process (default: lines up to PSRT_LOG_LEVEL to stderr).
 * @param fn  the new sink, NULL for the default one
 * @param arg given to fn
 * @threads any; lines that are being written may still reach the old sink  @blocks no  @since 0.1
 */
void psrt_log_set_sink(psrt_log_fn fn, void *arg);

/* ---- context ----------------------------------------------------------------------------------- */

typedef struct psrt_context_params {
    size_t size;
    /** NULL-terminated list of "PSRT_NAME=value" that override the environment; NULL for none. */
    const char *const *settings;
    /** Called when the context is lost (not when it is destroyed in order) or members change, from
     *  psrt_context_create on, on any thread. `text` is valid during the call. May be NULL; same rules
     *  as op callbacks. */
    void (*on_event)(void *arg, int event, const char *text);
    void *arg;
} psrt_context_params_t;
#define PSRT_CONTEXT_PARAMS_INIT                                                                   \
    {                                                                                              \
        sizeof(psrt_context_params_t), NULL, NULL, NULL                                            \
    }

/* The set of live workers or servers changed; the text says how: "worker:1 died", "worker:2 left,
 * worker:1 joined at node7", "server:0 was restarted at node3"; first of all, on joining, how many there
 * are. psrt_context_members has the details. */
#define PSRT_EVENT_MEMBERS 1
#define PSRT_EVENT_LOST 2 /* the context is lost, every op ends with an error */

/**
 * Joins the job described by the environment (PSRT_COORDINATOR, PSRT_ROLE=worker, PSRT_RANK, ...,
 * as psrt-launch sets it) or, with no cluster there, starts an embedded server in this process.
 * @param params NULL for all defaults
 * @param ctx_p  the context; release with psrt_context_destroy
 * @return OK; ERR_INVALID a variable has no legal value (the text names it); ERR_START_TIMEOUT the
 *         job did not assemble (the text names who is missing); ERR_REFUSED the rank is taken by
 *         a live process, or wrong key; ERR_UNREACHABLE no coordinator there, or one that encrypts
 *         with another key; ERR_NOT_FOUND a plug-in of PSRT_PLUGINS cannot be loaded (the text names
 *         its path); ERR_LIMIT, ERR_NO_MEMORY
 * @threads any  @blocks until all tasks joined or the start timeout passed  @since 0.1
 */
psrt_status_t psrt_context_create(const psrt_context_params_t *params, psrt_context_t **ctx_p);

/**
 * Completes outstanding operations (up to PSRT_DRAIN_TIMEOUT), leaves the job, frees everything that
 * belongs to the context: tables, operations (released or not), buffers, communicators, fusions.
 * Operations that are left end with ERR_CLOSED, their callbacks run. A lost context is not drained.
 * @param ctx NULL is allowed
 * @threads no other call on this context may run, no callback of it is this call's caller
 * @blocks up to the drain timeout and some seconds for leaving  @since 0.1
 */
void psrt_context_destroy(psrt_context_t *ctx);

typedef struct psrt_context_attr {
    size_t size;
    uint32_t rank;         /**< index of this worker                          */
    uint32_t workers;      /**< workers of the job as started                 */
    uint32_t servers;      /**< servers of the job                            */
    uint32_t live_workers; /**< workers in the current view                   */
    uint32_t live_servers; /**< servers in the current view                   */
    uint64_t view;         /**< number of the view, grows with every change   */
    int embedded;          /**< 1: the server runs in this process            */
    uint64_t pushed_bytes; /**< payload pushed since the context was created  */
    uint64_t pulled_bytes; /**< payload pulled since the context was created  */
    char transports[128];  /**< paths to the servers that are connected now: "shm", "shm,zmq" */
} psrt_context_attr_t;
#define PSRT_CONTEXT_ATTR_INIT                                                                     \
    {                                                                                              \
        sizeof(psrt_context_attr_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }                              \
    }

/**
 * Facts about the context, now.
 * @param attr_p caller's struct, `size` set
 * @return OK; ERR_INVALID
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_context_query(psrt_context_t *ctx, psrt_context_attr_t *attr_p);

typedef enum psrt_role { PSRT_ROLE_WORKER = 1, PSRT_ROLE_SERVER = 2 } psrt_role_t;

typedef struct psrt_member {
    size_t size;
    psrt_role_t role;
    uint32_t rank;
    uint64_t incarnation; /**< of the last process in this place, only grows; 0: there was none */
    int alive;            /**< it is in the current view                                        */
    int finished;         /**< a worker that left in order, not one that died                   */
    char host[64];        /**< where that process runs or ran; "": not known                    */
} psrt_member_t;
#define PSRT_MEMBER_INIT                                                                           \
    {                                                                                              \
        sizeof(psrt_member_t), PSRT_ROLE_WORKER, 0, 0, 0, 0, { 0 }                                 \
    }

/**
 * Who is, or was, in the job: every place of a role, by rank, all of one view.
 * @param role    workers or servers
 * @param members array of which the first entry's `size` is set; the others need nothing. May be NULL
 *                with a count of 0
 * @param count_p in: entries of the array; out: places of the role. If there are more than entries, the
 *                first ones were filled
 * @return OK; ERR_INVALID
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_context_members(psrt_context_t *ctx, psrt_role_t role, psrt_member_t *members,
                                   uint32_t *count_p);

/**
 * Waits until `count` workers called it with the same name, after completing this worker's earlier
 * operations. A name may be used again once it completed.
 * @param name       1 to 255 bytes
 * @param count      0: all workers of the current view
 * @param timeout_ns PSRT_FOREVER or nanoseconds
 * @return OK; ERR_TIMEOUT (the text names who is missing); ERR_MISMATCH another count was given by
 *         others; the error of the first op of this context that failed since the last barrier that
 *         told of one (those that were canceled do not count): then it was not entered, call again to
 *         enter it; the error of a lost context
 * @threads any, one barrier of a name at a time  @blocks yes  @since 0.1
 */
psrt_status_t psrt_barrier(psrt_context_t *ctx, const char *name, uint32_t count,
                           uint64_t timeout_ns);

/* ---- memory ------------------------------------------------------------------------------------ */

/**
 * Memory that the runtime shares with its peers, so that push copies nothing.
 * @param bytes above 0
 * @return zeroed, aligned to 4096 bytes, owned by the context; NULL on failure (see psrt_last_error)
 * @threads any  @blocks no  @since 0.1
 */
void *psrt_alloc(psrt_context_t *ctx, uint64_t bytes);

/**
 * Frees memory of psrt_alloc. No operation may be using it.
 * @param ptr NULL is allowed
 * @threads any  @blocks no  @since 0.1
 */
void psrt_free(psrt_context_t *ctx, void *ptr);

/* ---- tables ------------------------------------------------------------------------------------ */

typedef enum psrt_dtype {
    PSRT_DTYPE_NONE = 0, /* default: f32 */
    PSRT_F32 = 1,
    PSRT_F64 = 2,
    PSRT_F16 = 3,  /* IEEE binary16; servers keep and update f32 and round what they publish */
    PSRT_BF16 = 4, /* upper half of an f32; as f16 */
    PSRT_I32 = 5,  /* exact sums, two's complement; optimizer "none", reduce "sum" */
    PSRT_I64 = 6,  /* as i32 */
    PSRT_I8 = 7,   /* this and the next two: collectives only, no tables */
    PSRT_I16 = 8,
    PSRT_U8 = 9
} psrt_dtype_t;

/** Bytes of one element; 0 for an unknown type. @threads any @blocks no @since 0.1 */
size_t psrt_dtype_size(psrt_dtype_t dtype);
/** "f32", ...; "none" for an unknown type. @threads any @blocks no @since 0.1 */
const char *psrt_dtype_name(psrt_dtype_t dtype);

typedef struct psrt_dense_params {
    size_t size;
    psrt_dtype_t dtype; /**< of the values and gradients; default f32                            */
    int ndim;           /**< 1..8                                                                */
    uint64_t shape[PSRT_MAX_DIMS]; /**< row major; every extent above 0                          */
    /** "zeros" (default), "constant:value=v", "uniform:low=a,high=b", "normal:mean=m,std=s",
     *  "glorot" (uniform), "he" (normal), each random one also takes seed=n; "rank0": worker 0 gives
     *  the values in init_data. Random values depend on seed, name and element only. i32 and i64
     *  start as zeros, rank0 or an integer constant. */
    const char *init;
    const void *init_data; /**< for "rank0" on worker 0: all values, read before create returns   */
    /** "adam:lr=1e-3,weight_decay=0.01": one of docs/optimizers.md, with the hyper-parameters that are
     *  not the default, and keys that every optimizer has: schedules, clip_norm, skip_nonfinite, ema;
     *  "none" or NULL: a push is added to the values. */
    const char *optimizer;
    /** "sync" (default), "sync:backup=b" (a step closes with the first N-b contributions), "async",
     *  "ssp:s"; docs/consistency.md */
    const char *consistency;
    const char *reduce; /**< "average" (default, not for integers) or "sum" (their default) of the
                             contributions of a sync step                                     */
    int deterministic;  /**< sync only: sum in rank order, bit-equal results                  */
    /** f32 tables: "none" (default), or "f16", "bf16": gradients and values travel with 16 bits an
     *  element, rounded by their sender; memory on both sides stays f32. */
    const char *codec;
    /** Tables with the same group are clipped to one norm (clip_norm) and skipped together
     *  (skip_nonfinite), which must be the same for all of them: torch's clip_grad_norm_ over a model.
     *  Declare all of them before the first push to one; their steps go together: what is pushed
     *  to one for step n is applied when step n of the others is complete. NULL or "": the table
     *  alone. */
    const char *group;
} psrt_dense_params_t;
#define PSRT_DENSE_PARAMS_INIT                                                                     \
    {                                                                                              \
        sizeof(psrt_dense_params_t), PSRT_DTYPE_NONE, 0, { 0 }, NULL, NULL, NULL, NULL, NULL, 0,   \
            NULL, NULL                                                                             \
    }

/**
 * Declares a dense table. All workers declare the same tables, in any order; the first
 * specification wins and a later one must agree with it.
 * @param name    1..255 bytes, identity of the table in the job
 * @param params  see psrt_dense_params_t
 * @param table_p the table; owned by the context
 * @return OK; ERR_INVALID (the text names the field; or its group is in use already); ERR_MISMATCH
 *         (the text shows both sides, or both tables of a group; before the first push all declarers
 *         fail, after it only the newcomer); ERR_NO_MEMORY here or on the server that the text names;
 *         ERR_SHARD_LOST; errors of a lost context
 * @threads any  @blocks until the servers hold the table  @since 0.1
 */
psrt_status_t psrt_dense_create(psrt_context_t *ctx, const char *name,
                                const psrt_dense_params_t *params, psrt_table_t **table_p);

/**
 * Declares many tables with one round trip.
 * @param count   number of entries of names, params and tables_p
 * @return as psrt_dense_create; on failure no handle is written, tables that were fine stay declared
 * @threads any  @blocks as psrt_dense_create  @since 0.1
 */
psrt_status_t psrt_dense_create_many(psrt_context_t *ctx, size_t count, const char *const *names,
                                     const psrt_dense_params_t *params, psrt_table_t **tables_p);

typedef struct psrt_table_attr {
    size_t size;
    const char *name; /**< valid as long as the table                         */
    psrt_dtype_t dtype;
    int ndim;
    uint64_t shape[PSRT_MAX_DIMS];
    uint64_t elements;
    uint64_t step; /**< the step that this worker's next push would have   */
    /** Steps that changed nothing for their gradient was not finite (skip_nonfinite), as far as this
     *  worker was told: up to the step of its last push_pull at least. */
    uint64_t skipped_steps;
} psrt_table_attr_t;
#define PSRT_TABLE_ATTR_INIT                                                                       \
    {                                                                                              \
        sizeof(psrt_table_attr_t), NULL, PSRT_DTYPE_NONE, 0, { 0 }, 0, 0, 0                        \
    }

/** Facts about a table. @return OK; ERR_INVALID  @threads any  @blocks no  @since 0.1 */
psrt_status_t psrt_table_query(psrt_table_t *table, psrt_table_attr_t *attr_p);

/**
 * Sets a hyper-parameter of a table's optimizer for all updates from a step on, on all servers alike, or
 * on none. Any worker may, at any time; what was set last holds from its step on. Of a learning rate with
 * a schedule it sets the base. The specification of the table stays the declared one.
 * @param key       "lr", "weight_decay", ...: a hyper-parameter of docs/optimizers.md; keys that every
 *                  optimizer has (schedule, clip_norm, ema, ...) stay as declared
 * @param value     checked with the optimizer's other hyper-parameters as set for that step
 * @param from_step sync: the first step that is closed with it; PSRT_STEP_NEXT: the lowest that no server
 *                  has closed. Tables of other consistency take PSRT_STEP_NEXT alone: pushes that arrive
 *                  after the call returned are applied with it
 * @param step_p    the step from which it holds, 0 if not sync; may be NULL
 * @return OK: every server has it; ERR_INVALID (the text names the hyper-parameter that was meant, or
 *         what is wrong with the value); ERR_TOO_LATE that step was closed somewhere (the text names the
 *         server and the step it has reached), nothing has changed; ERR_LIMIT too many are set for steps
 *         to come; ERR_SHARD_LOST, ERR_MISMATCH, ERR_NO_MEMORY; errors of a lost context, after which the
 *         change may have been made or not
 * @threads any, not in a callback
 * @blocks until the servers agreed, longer while the coordinator is away; they close no step from
 *         from_step on meanwhile  @since 0.1
 */
psrt_status_t psrt_table_set(psrt_table_t *table, const char *key, double value, uint64_t from_step,
                             uint64_t *step_p);

/* ---- operations -------------------------------------------------------------------------------- */

typedef struct psrt_result {
    psrt_status_t status;
    int late;         /**< a sync push came, on one slice at least, after its step was closed, and
                           was discarded there                                              */
    uint64_t step;    /**< step that the push belonged to                                         */
    uint64_t version; /**< lowest version of the values that were returned                        */
} psrt_result_t;

/** Called once when an op ends, on whichever thread progresses, perhaps within psrt_submit. It may
 *  start, test and release operations, this one too, query, and allocate; it must not wait, destroy the
 *  context, or take long. */
typedef void (*psrt_op_fn)(void *arg, const psrt_result_t *result);

/** One transfer: push if `grad` is set, pull if `value` is set, push_pull if both are. */
typedef struct psrt_request {
    size_t size;
    psrt_table_t *table;
    const void *grad; /**< `count` elements of the table's dtype; unchanged until the op ends     */
    void *value;      /**< `count` elements, not over grad; undefined until the op ended with OK */
    uint64_t offset;  /**< first element                                                          */
    uint64_t count;   /**< elements; 0 with offset 0: the whole table                             */
    uint64_t step; /**< push: its step, PSRT_STEP_NEXT (default of _INIT): this worker's next one;
                           pull alone: lowest version wanted, PSRT_STEP_NEXT: what consistency says */
    int priority;  /**< -128..127, higher goes first, never reorders one slice; default 0       */
    int more;      /**< push of a range: further pushes of this step follow (the step stays open);
                           the last push, or one of the whole table, ends the step                 */
    int ema; /**< pull alone: the averages of the weights (optimizer key `ema`) in place of the
                           values, of the version that the pull would have given                   */
} psrt_request_t;
#define PSRT_REQUEST_INIT                                                                          \
    {                                                                                              \
        sizeof(psrt_request_t), NULL, NULL, NULL, 0, 0, PSRT_STEP_NEXT, 0, 0, 0                    \
    }

typedef struct psrt_submit_params {
    size_t size;
    psrt_op_fn callback; /**< NULL: none */
    void *arg;
    /** Nanoseconds from now. An op that has not ended by then ends with ERR_DEADLINE as soon as nobody
     *  can touch its memory, as if by psrt_op_cancel; its text says what was missing: workers whose
     *  contribution it waited for, or the server that did not answer. 0: PSRT_OP_DEADLINE, which is none
     *  by default. */
    uint64_t deadline_ns;
} psrt_submit_params_t;
#define PSRT_SUBMIT_PARAMS_INIT                                                                    \
    {                                                                                              \
        sizeof(psrt_submit_params_t), NULL, NULL, 0                                                \
    }

/**
 * Starts transfers, of one or many tables, as one operation.
 * A push is done when every server captured it (the gradient may be reused), a push_pull when it was
 * applied and the new values are in `value`, a pull when the values are in `value`. In a sync table a
 * pull waits for the version that this worker's own pushes will produce.
 * @param requests `count` entries; read before the call returns; memory they point to is used until
 *                 the op ended
 * @param params   NULL for none
 * @param op_p     the operation, released by psrt_op_wait or psrt_op_release; NULL: wait here
 * @return OK: started (or, with op_p NULL, done); ERR_INVALID (the text names table and field);
 *         ERR_NO_MEMORY; with op_p NULL also the errors of the op: ERR_DEADLINE, ERR_SHARD_LOST,
 *         ERR_PEER_LOST (worker 0 died before it gave the first values of a rank0 table), ERR_MISMATCH,
 *         ERR_FENCED, ERR_COORDINATOR_LOST, ERR_CLOSED, ERR_UNREACHABLE (a server lives, but no path led
 *         to it for PSRT_COORDINATOR_TIMEOUT; the context is lost); of an op that is waited for
 *         elsewhere also ERR_CANCELED
 * @threads any  @blocks only with op_p NULL  @since 0.1
 */
psrt_status_t psrt_submit(psrt_context_t *ctx, const psrt_request_t *requests, size_t count,
                          const psrt_submit_params_t *params, psrt_op_t **op_p);

/** Pushes the whole table's gradient. As psrt_submit with one request. @since 0.1 */
psrt_status_t psrt_push(psrt_table_t *table, const void *grad, psrt_op_t **op_p);
/** Pulls the whole table. As psrt_submit with one request. @since 0.1 */
psrt_status_t psrt_pull(psrt_table_t *table, void *value, psrt_op_t **op_p);
/** Pushes the whole gradient and pulls the values after it was applied. @since 0.1 */
psrt_status_t psrt_push_pull(psrt_table_t *table, const void *grad, void *value, psrt_op_t **op_p);

/**
 * State of an operation, without waiting; moves transfers on.
 * @param result_p NULL or where the result goes when the op ended
 * @return IN_PROGRESS; else the op's status
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_op_test(psrt_op_t *op, psrt_result_t *result_p);

/**
 * Waits for an operation and releases it, unless it returns ERR_TIMEOUT (the op then goes on).
 * @param op         NULL returns OK
 * @param timeout_ns PSRT_FOREVER or nanoseconds
 * @return ERR_TIMEOUT (the text says what is missing); ERR_INVALID in a callback of this context, if
 *         the op has not ended (it goes on and is not released); else the op's status
 * @threads any; one thread waits for an op  @blocks yes  @since 0.1
 */
psrt_status_t psrt_op_wait(psrt_op_t *op, uint64_t timeout_ns);

/**
 * Asks an operation to end. It ends with ERR_CANCELED, or as it would have if it is done before that; wait
 * or test it as any other. Parts that were not sent yet are given up at once, the others are taken back
 * from their servers; a server that does not answer within PSRT_CANCEL_TIMEOUT is cut off and dialled
 * anew. Once the op ended nobody reads or writes its memory any more. A push that ended so has been
 * applied, per slice, once or not at all; it keeps its step, which it ends as far as it would have:
 * docs/consistency.md. An op that ended stays as it is.
 * @param op NULL is allowed
 * @threads any; not while another thread may release the op  @blocks no  @since 0.1
 */
void psrt_op_cancel(psrt_op_t *op);

/**
 * Releases an operation without waiting. One that has not ended goes on and still uses its memory.
 * @param op NULL is allowed
 * @threads any  @blocks no  @since 0.1
 */
void psrt_op_release(psrt_op_t *op);

/* ---- collectives ------------------------------------------------------------------------------- */

/**
 * How collectives reduce. f16 and bf16 are reduced in f32 and rounded once, to the nearest value, ties to
 * even; integers are two's complement, SUM and PROD wrap around. Results are the same to the bit on all
 * ranks: one that is NaN is the positive quiet NaN without payload, if it was reduced of two or more.
 */
typedef enum psrt_redop {
    PSRT_SUM = 0,
    PSRT_PROD = 1,
    PSRT_MIN = 2, /**< NaN if any is NaN; -0 is below +0                                       */
    PSRT_MAX = 3, /**< as MIN                                                                  */
    /** The sum over the number of ranks that take part. Integers are summed in 64 bits, so only sums of i64
     *  can wrap; the quotient is rounded toward zero, as C and NCCL do. */
    PSRT_AVG = 4
} psrt_redop_t;

/** "sum", ...; "none" for an unknown operation. @threads any @blocks no @since 0.1 */
const char *psrt_redop_name(psrt_redop_t op);

/* ---- servers and coordinator ------------------------------------------------------------------- */

typedef struct psrt_server_params {
    size_t size;
    const char *const *settings; /**< as in psrt_context_params_t                            */
    const volatile int *stop;    /**< becomes non-zero: leave in order, looked at every 100 ms;
                                      NULL: never                                             */
} psrt_server_params_t;
#define PSRT_SERVER_PARAMS_INIT                                                                    \
    {                                                                                              \
        sizeof(psrt_server_params_t), NULL, NULL                                                   \
    }

/**
 * Runs a parameter server described by the environment (PSRT_ROLE=server) in PSRT_SERVER_THREADS
 * threads of its own, until the job ends.
 * @return OK: all workers finished or `stop` was set; ERR_* as psrt_context_create;
 *         ERR_PEER_LOST: all workers died without finishing; ERR_FENCED; ERR_COORDINATOR_LOST
 * @threads any; several may run in a process  @blocks until the job ends  @since 0.1
 */
psrt_status_t psrt_server_run(const psrt_server_params_t *params);

/**
 * Runs the coordinator of a job (PSRT_ROLE=coordinator) in the calling thread until the job ends.
 * Listens on PSRT_LISTEN_FD or at PSRT_COORDINATOR.
 * @return OK: all workers finished; ERR_START_TIMEOUT (the text names who is missing);
 *         ERR_PEER_LOST: all workers died; ERR_INVALID, ERR_LIMIT, ERR_IO
 * @threads any  @blocks until the job ends  @since 0.1
 */
psrt_status_t psrt_coordinator_run(const psrt_server_params_t *params);

/* ---- introspection ----------------------------------------------------------------------------- */

typedef struct psrt_config_info {
    size_t size;
    const char *name, *type, *default_text, *choices, *doc; /**< static                        */
    char value[256]; /**< current value as text, cut if longer                                 */
    char origin[32]; /**< "default", "environment" or "set"                                    */
} psrt_config_info_t;

/**
 * Entry `index` of the configuration table, with its value in the current environment.
 * @param info_p caller's struct, `size` set
 * @return OK; ERR_NOT_FOUND past the last entry; ERR_INVALID also: the environment has an illegal value
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_config_query(size_t index, psrt_config_info_t *info_p);

typedef struct psrt_module_info {
    size_t size;
    char kind[16]; /**< "transport", "kernels", "plugin", "optimizer", "module"   */
    char name[32];
    int available;  /**< usable on this machine                                    */
    int score;      /**< transports and kernels: higher is preferred; else 0       */
    char note[160]; /**< why not available, or what it is                          */
} psrt_module_info_t;

/**
 * Entry `index` of the list of modules: transports, kernel variants, plug-ins (which this loads),
 * optimizers, optional modules.
 * @param info_p caller's struct, `size` set
 * @return OK; ERR_NOT_FOUND past the last entry; ERR_INVALID
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_module_query(size_t index, psrt_module_info_t *info_p);

/**
 * One line about the machine: cores this process may use, NUMA nodes, caches.
 * @param buf,size where it goes, cut if too small
 * @threads any  @blocks no  @since 0.1
 */
void psrt_topology_describe(char *buf, size_t size);

typedef enum psrt_drawing { PSRT_DRAW_TEXT, PSRT_DRAW_SVG } psrt_drawing_t;

/**
 * The machine as hwloc sees it: packages, memory, shared caches, cores and which of them this process may use,
 * network, RDMA and GPU devices with the memory they are near.
 * @param as lines of text, or an SVG file
 * @param text_p the drawing, to be given to free()
 * @return OK; ERR_INVALID; ERR_NO_MEMORY also: hwloc cannot read the machine
 * @threads any  @blocks some milliseconds, it reads /sys  @since 0.1
 */
psrt_status_t psrt_topology_draw(psrt_drawing_t as, char **text_p);

/**
 * Which algorithm carries out which collective: the rules of PSRT_COLL_TUNE in this environment and those built in,
 * a line each, by collective, first the one that goes before the others.
 * @param text_p the table, to be given to free()
 * @return OK; ERR_INVALID also: PSRT_COLL_TUNE or another variable is illegal; ERR_NO_MEMORY
 * @threads any  @blocks no  @since 0.1
 */
psrt_status_t psrt_collectives_describe(char **text_p);

/**
 * Copies memory, or adds f32 `dst += src`, with the variant the runtime uses. For benchmarks.
 * @param elements f32 elements
 * @threads any  @blocks no  @since 0.1
 */
void psrt_kernel_copy(void *dst, const void *src, uint64_t bytes);
void psrt_kernel_add_f32(float *dst, const float *src, uint64_t elements);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
