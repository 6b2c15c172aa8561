/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of small collectives: each member makes its own, tells the others where it is, and maps theirs. Two calls of
 * the engine do it, so a member that dies, is late or leaves meanwhile is its business. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfd.h"
#include "runtime/worker/small.h"

#define FLAT_AT 128 /* before it stands the nonce */
#define BYTES (FLAT_AT + PSRTI_FLAT_BYTES)

_Static_assert(sizeof(psrti_small_card_t) == 40, "what a member tells of its memory");

static void *flat_of(void *memory) { return (uint8_t *)memory + FLAT_AT; }

/* Whoever forbids shared memory, or has its messages spoilt for a test, wants no other way. */
static int is_near(const psrti_worker_t *w, uint32_t rank)
{
    const psrti_wpeer_t *p = &w->peers[rank];
    const char *fault = psrti_config_text(w->p.config, PSRTI_CONF_FAULT);
    return p->up && strcmp(p->link->transport, "shm") == 0 && (!fault || !*fault);
}

static int all_are_near(const psrt_comm_t *comm)
{
    const uint32_t *ranks = psrti_comm_ranks(comm->core);
    for (uint32_t m = 0; m < psrti_comm_size(comm->core); m++)
        if (m != psrti_comm_rank(comm->core) && !is_near(comm->worker, ranks[m])) return 0;
    return 1;
}

/* Fills the card. */
static int make_memory(psrti_small_t *s)
{
    uint32_t own = psrti_comm_rank(s->comm->core);
    psrti_small_card_t *card = &s->card;

    if (getrandom(card->nonce, sizeof card->nonce, 0) != sizeof card->nonce) return 0;
    if (psrti_memfd_create(BYTES, false, &s->fd, &s->memory[own]) != PSRT_OK) {
        s->fd = -1;
        return 0;
    }
    memcpy(s->memory[own], card->nonce, sizeof card->nonce);
    psrti_flat_format(flat_of(s->memory[own]), own, s->size);
    card->pid = getpid();
    card->fd = s->fd;
    return 1;
}

static uint64_t own_cpus(void)
{
    cpu_set_t set;
    uint64_t cpus = 0;
    /* A host with more than a set has room for. */
    if (sched_getaffinity(0, sizeof set, &set)) return UINT64_MAX;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus |= 1ull << cpu % 64;
    return cpus;
}

static psrti_small_t *small_new(psrt_comm_t *comm)
{
    psrti_worker_t *w = comm->worker;
    psrti_small_t *s = aligned_alloc(128, sizeof *s);
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->comm = comm;
    s->size = psrti_comm_size(comm->core);
    s->tuned = psrti_comm_tuned(comm->core);
    psrti_list_init(&s->active);
    psrti_list_init(&s->queue);
    psrti_list_push(&w->smalls, &s->node);
    w->nsmalls++;
    s->card.crowded = (uint8_t)w->spin.crowded;
    s->card.cpus = own_cpus();
    s->card.able = w->nsmalls <= PSRTI_SMALL_COMMS && all_are_near(comm) && make_memory(s);
    return s;
}

void psrti_small_free(psrti_small_t *s)
{
    if (!s) return;
    psrti_flat_free(s->flat);
    for (uint32_t m = 0; m < s->size; m++)
        if (s->memory[m]) munmap(s->memory[m], BYTES);
    if (s->fd >= 0) close(s->fd);
    s->comm->worker->nsmalls--;
    psrti_list_remove(&s->node);
    free(s);
}

/* ---- the memory of others ---------------------------------------------------------------------- */

/* A number and a descriptor may be those of another namespace: the nonce says that it is the right one. */
static void *map_member(const psrti_small_card_t *card)
{
    const char *why;
    void *memory = NULL;
    int fd = psrti_memfd_open(card->pid, card->fd);
    if (fd < 0) return NULL;
    if (psrti_memfd_map(fd, BYTES, &memory, &why) == PSRT_OK &&
        memcmp(memory, card->nonce, sizeof card->nonce) != 0) {
        munmap(memory, BYTES);
        memory = NULL;
    }
    close(fd);
    return memory;
}

static int map_all(psrti_small_t *s)
{
    void *segments[PSRTI_FLAT_MEMBERS];
    uint32_t own = psrti_comm_rank(s->comm->core);

    for (uint32_t m = 0; m < s->size; m++) {
        if (m != own) s->memory[m] = map_member(&s->cards[m]);
        if (!s->memory[m]) {
            psrti_info(
                "worker:%u: the memory of rank %u of a communicator cannot be read: small collectives "
                "go as messages",
                s->comm->worker->p.rank, m);
            return 0;
        }
        segments[m] = flat_of(s->memory[m]);
    }
    return psrti_flat_create(s->comm->worker->kernels, own, s->size, segments, &s->flat) == PSRT_OK;
}

/* ---- agreeing ---------------------------------------------------------------------------------- */

static void gather(psrti_wcollop_t *op, const void *in, void *out, uint64_t bytes)
{
    op->core = (psrti_collop_t){ .status = PSRT_OK };
    op->call = (psrti_coll_call_t){
        .what = PSRTI_COLL_ALLGATHER, .dtype = PSRT_U8, .count = bytes, .in = in, .out = out
    };
    psrti_coll_start(op->makes->core, &op->call, &op->core);
}

static int begin(psrti_wcollop_t *op)
{
    psrt_comm_t *comm = op->makes;
    uint32_t n = psrti_comm_size(comm->core);
    if (n < 2 || n > PSRTI_FLAT_MEMBERS) return 0;
    comm->small = small_new(comm);
    if (!comm->small) {
        static const char text[] = "out of memory for a communicator";
        psrti_comm_fail(comm->core, PSRT_ERR_NO_MEMORY, text);
        op->core.status = PSRT_ERR_NO_MEMORY;
        op->core.text = strdup(text);
        return 0;
    }
    gather(op, &comm->small->card, comm->small->cards, sizeof comm->small->card);
    return 1;
}

/* All cards are here: the same ones on all members, so all go on or none. */
static int took_cards(psrti_wcollop_t *op, psrti_small_t *s)
{
    uint64_t cpus = 0;
    s->has_cards = 1;
    for (uint32_t m = 0; m < s->size; m++) {
        if (!s->cards[m].able) return 0;
        s->crowded |= s->cards[m].crowded;
        cpus |= s->cards[m].cpus;
    }
    int share = (uint32_t)__builtin_popcountll(cpus) < s->size;
    s->bytes = share ? PSRTI_FLAT_WIDE : s->size == 2 ? PSRTI_SMALL_PAIR : PSRTI_FLAT_DATA;
    s->sums = s->size == 2 ? PSRTI_FLAT_WIDE : s->bytes;
    s->able = (uint8_t)map_all(s);
    gather(op, &s->able, s->all_able, 1);
    return 1;
}

static void agree(psrti_small_t *s)
{
    for (uint32_t m = 0; m < s->size; m++)
        if (!s->all_able[m]) return;
    close(s->fd);
    s->fd = -1;
    atomic_store_explicit(&s->comm->small_on, 1, memory_order_release);
}

int psrti_small_make(psrti_wcollop_t *op)
{
    psrt_comm_t *comm = op->makes;
    if (!comm->small) return begin(op);
    psrti_small_t *s = comm->small;
    if (!s->has_cards && took_cards(op, s)) return 1;
    agree(s);
    psrti_comm_hide_calls(comm->core);
    if (!atomic_load(&comm->small_on)) {
        comm->small = NULL;
        psrti_small_free(s);
    }
    return 0;
}
