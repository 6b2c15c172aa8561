/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the state file of a coordinator. What one starts with, it writes again as something that a next one
 * starts with, whatever happened in between. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/cluster/coord_core.h"

#define SECOND PSRTI_NS_PER_S

typedef struct fx {
    psrti_coord_t *c;
    char *state;
    int finished;
} fx_t;

static void on_send(void *arg, uint64_t peer, const Psrt__Control *msg)
{
    (void)arg, (void)peer, (void)msg;
}

static void on_close(void *arg, uint64_t peer) { (void)arg, (void)peer; }

static int on_persist(void *arg, const char *text, size_t len, int append)
{
    fx_t *fx = arg;
    size_t before = append ? strlen(fx->state) : 0;
    fx->state = realloc(fx->state, before + len + 1);
    FUZZ_ASSERT(fx->state && memchr(text, 0, len) == NULL);
    memcpy(fx->state + before, text, len);
    fx->state[before + len] = 0;
    return 1;
}

static void on_note(void *arg, psrt_log_level_t level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static void on_finish(void *arg, psrt_status_t status, const char *text)
{
    (void)status, (void)text;
    ((fx_t *)arg)->finished = 1;
}

static psrt_status_t start(fx_t *fx, const char *state)
{
    psrti_coord_params_t p = { .workers = 2,
                               .servers = 2,
                               .vshards = 8,
                               .heartbeat_ns = SECOND,
                               .lease_ns = 5 * SECOND,
                               .start_timeout_ns = 60 * SECOND,
                               .drain_ns = 10 * SECOND,
                               .state = state };
    psrti_coord_env_t env = { fx, on_send, on_close, on_persist, on_note, on_finish };
    return psrti_coord_new(&p, &env, 100 * SECOND, &fx->c);
}

/* Leases of whoever does not come back end; `beats` is how long it runs. */
static void run(fx_t *fx, unsigned beats)
{
    for (uint64_t beat = 0; beat < beats && !fx->finished; beat++)
        psrti_coord_tick(fx->c, (101 + beat) * SECOND);
    psrti_coord_free(fx->c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    fx_t fx = { .c = NULL }, next = { .c = NULL };
    char *text = fuzz_text(&in, '\0');
    if (start(&fx, text) == PSRT_OK) {
        fuzz_accept();
        run(&fx, 20);
        FUZZ_ASSERT(fx.state && start(&next, fx.state) == PSRT_OK);
        run(&next, 1);
    } else {
        FUZZ_ASSERT(fx.state == NULL);
    }
    free(text);
    free(fx.state);
    free(next.state);
    return 0;
}

static void seed(const char *name, const char *text) { fuzz_seed(name, text, strlen(text)); }

#define HEAD "psrt-coordinator 1\njob - 2 2 8\n"
#define FACTS "generation 1\nincarnation 6\nview 3\ntable 65\nformed 1\n"
/* role x 2^24 + rank; state; incarnation, nonce, term, threads, process, host */
#define SERVERS "task 33554432 1 3 1002 1 1 44 node7\ntask 33554433 1 4 1003 1 1 45 node7\n"
#define WORKERS "task 50331648 1 1 1000 0 0 42 node7\ntask 50331649 1 5 1001 0 0 43 node8\n"

void fuzz_seeds(void)
{
    fx_t fx = { .c = NULL };
    FUZZ_ASSERT(start(&fx, NULL) == PSRT_OK);
    seed("new", fx.state);
    run(&fx, 1);
    free(fx.state);
    seed("formed", HEAD FACTS SERVERS WORKERS "end\n");
    seed("rich",
         HEAD FACTS SERVERS "lost 33554433 3\n" WORKERS
                            "result 50331648 5 0\nresult 50331649 6 -3\ngranted 50331648 1 7\n"
                            "from 50331649 3 2 1:7 2:8\n"
                            "set 50331648 2 4294967297 1 3fe0000000000000 3 lr\nend\n");
}
