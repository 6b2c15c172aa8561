/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which place: joins, registrations again, newcomers that wait. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

/* ---- peers and places ------------------------------------------------------------------------ */

void psrti_coord_detach(psrti_coord_t *c, place_t *p)
{
    peer_t *peer = psrti_map_get(&c->peers, p->peer);

    if (peer) peer->place = NULL;
    p->peer = 0;
}

static void attach(psrti_coord_t *c, place_t *p, peer_t *peer)
{
    if (p->peer == peer->id) return;
    if (p->peer) {
        uint64_t old = p->peer;
        psrti_coord_detach(c, p);
        free(psrti_map_remove(&c->peers, old));
        c->env.close(c->env.arg, old);
    }
    p->peer = peer->id;
    p->view_sent = 0;
    peer->place = p;
}

/* ---- newcomers that wait ------------------------------------------------------------------------ */

/* The place may be that of a process that died a moment ago. So a newcomer waits, in a queue: who has the
 * place, or comes before it, gives a sign of life (then it is refused) or is declared dead. */
typedef struct parked {
    psrti_list_t node;
    uint64_t peer, at, seen; /* when it came, its last sign of life: on the running clock */
    Psrt__Join *join;
} parked_t;

static void forget(parked_t *k)
{
    psrti_list_remove(&k->node);
    if (k->join) psrt__join__free_unpacked(k->join, NULL);
    free(k);
}

void psrti_coord_forget_parked(place_t *p)
{
    while (!psrti_list_empty(&p->parked))
        forget(PSRTI_LIST_ENTRY(p->parked.next, parked_t, node));
}

static parked_t *find_parked(const place_t *p, uint64_t peer)
{
    for (psrti_list_t *n = p->parked.next; n != &p->parked; n = n->next)
        if (PSRTI_LIST_ENTRY(n, parked_t, node)->peer == peer)
            return PSRTI_LIST_ENTRY(n, parked_t, node);
    return NULL;
}

static Psrt__Join *join_copy(const Psrt__Join *join)
{
    size_t size = psrt__join__get_packed_size(join);
    uint8_t *bytes = malloc(size + 1);
    Psrt__Join *copy = NULL;

    if (bytes) {
        psrt__join__pack(join, bytes);
        copy = psrt__join__unpack(NULL, size, bytes);
    }
    free(bytes);
    return copy;
}

/* At the end of the queue, or where the same process is in it. */
static void park(psrti_coord_t *c, place_t *p, uint64_t peer, const Psrt__Join *join)
{
    psrti_list_t *at = p->parked.next;
    parked_t *k = calloc(1, sizeof *k);

    if (k) k->join = join_copy(join);
    if (!k || !k->join) {
        free(k);
        psrti_coord_refuse(c, peer, PSRT_ERR_NO_MEMORY, "coordinator: out of memory");
        return;
    }
    k->peer = peer;
    k->at = k->seen = c->run;
    while (at != &p->parked && PSRTI_LIST_ENTRY(at, parked_t, node)->join->nonce != join->nonce)
        at = at->next;
    psrti_list_insert_before(at, &k->node);
    if (at != &p->parked) forget(PSRTI_LIST_ENTRY(at, parked_t, node));
}

/* All behind `first` in the queue, since this process lives. A message that was under way when it died
 * proves nothing: signs count from half a heartbeat after the newcomer came. */
static void refuse_behind(psrti_coord_t *c, place_t *p, psrti_list_t *first, uint32_t pid,
                          const char *host)
{
    char text[COORD_TEXT_MAX], name[32];

    for (psrti_list_t *n = first->next, *next; n != &p->parked; n = next) {
        parked_t *k = PSRTI_LIST_ENTRY(n, parked_t, node);
        next = n->next;
        if (c->run - k->at < c->p.heartbeat_ns / 2) continue;
        snprintf(text, sizeof text, "%s is already taken by pid %u on host %.63s",
                 psrti_task_name(p->task, name), pid, host);
        psrti_coord_note(c, PSRT_LOG_WARN, "refused a second %s", name);
        psrti_coord_refuse(c, k->peer, PSRT_ERR_REFUSED, text);
        forget(k);
    }
}

void psrti_coord_sign_of_life(psrti_coord_t *c, place_t *p)
{
    p->seen = c->run;
    refuse_behind(c, p, &p->parked, p->pid, p->host);
}

void psrti_coord_parked_lives(psrti_coord_t *c, place_t *p, uint64_t peer)
{
    parked_t *k = find_parked(p, peer);

    if (!k) return;
    k->seen = c->run;
    refuse_behind(c, p, &k->node, k->join->pid, k->join->host);
}

void psrti_coord_parked_lost(place_t *p, uint64_t peer)
{
    parked_t *k = find_parked(p, peer);

    if (k) forget(k);
}

void psrti_coord_expire_parked(psrti_coord_t *c, place_t *p)
{
    char text[COORD_TEXT_MAX], name[32];

    PSRTI_LIST_FOREACH_SAFE(n, next, &p->parked)
    {
        parked_t *k = PSRTI_LIST_ENTRY(n, parked_t, node);
        if (c->run - k->seen <= c->p.lease_ns) continue;
        snprintf(text, sizeof text, "a newcomer for %s was silent while it waited",
                 psrti_task_name(p->task, name));
        psrti_coord_note(c, PSRT_LOG_WARN, "%s", text);
        psrti_coord_refuse(c, k->peer, PSRT_ERR_FENCED, text);
        forget(k);
    }
}

void psrti_coord_finish_parked(psrti_coord_t *c, const place_t *p)
{
    for (const psrti_list_t *n = p->parked.next; n != &p->parked; n = n->next)
        psrti_coord_send_finish(c, PSRTI_LIST_ENTRY(n, parked_t, node)->peer, c->end_status,
                                c->end_text);
}

/* ---- joining --------------------------------------------------------------------------------- */

static int set_threads(psrti_coord_t *c, place_t *p, const Psrt__Join *join, char *text,
                       size_t size)
{
    uint32_t rank = PSRTI_TASK_RANK(p->task), n = (uint32_t)join->n_threads;
    psrti_view_owner_t *threads;

    if (join->n_threads == 0) {
        snprintf(text, size, "server:%u listens with no thread", rank);
        return 0;
    }
    if (join->n_threads > PSRTI_MAX_RANKS || (c->formed && p->nthreads && n != p->nthreads)) {
        snprintf(text, size, "server:%u has %zu threads, the job began with %u", rank,
                 join->n_threads, p->nthreads);
        return 0;
    }
    threads = calloc(n, sizeof *threads);
    for (uint32_t i = 0; threads && i < n; i++) {
        if (psrti_owner_from_wire(join->threads[i], &threads[i]) != PSRT_OK) {
            snprintf(text, size, "server:%u: %s", rank, psrt_last_error());
            free(threads);
            return 0;
        }
        threads[i].server = rank;
        threads[i].thread = i;
    }
    if (!threads) {
        snprintf(text, size, "coordinator: out of memory");
        return 0;
    }
    free(p->threads);
    p->threads = threads;
    p->nthreads = n;
    return 1;
}

/* Those that fit, best first; a worker that listens nowhere has none. */
static int set_addrs(place_t *p, const Psrt__Join *join, char *text, size_t size)
{
    psrti_view_owner_t own = { .naddrs = 0 };
    size_t pos = 0;

    if (join->n_threads > 1 ||
        (join->n_threads && psrti_owner_from_wire(join->threads[0], &own) != PSRT_OK)) {
        snprintf(text, size, "worker:%u: its addresses are malformed", PSRTI_TASK_RANK(p->task));
        return 0;
    }
    memset(p->addrs, 0, sizeof p->addrs); /* views are compared byte by byte */
    for (uint32_t i = 0; i < own.naddrs; i++)
        if (pos + 1 + strlen(own.addr[i]) < sizeof p->addrs)
            psrti_append(p->addrs, sizeof p->addrs, &pos, "%s%s", pos ? " " : "", own.addr[i]);
    return 1;
}

/* What the process says of where it listens. */
static int set_listeners(psrti_coord_t *c, place_t *p, const Psrt__Join *join, char *text,
                         size_t size)
{
    if (PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER) return set_threads(c, p, join, text, size);
    return set_addrs(p, join, text, size);
}

void psrti_coord_try_form(psrti_coord_t *c)
{
    if (c->formed || c->recovering) return;
    for (uint32_t i = 0; i < psrti_place_count(c); i++)
        if (psrti_place_at(c, i)->state != PLACE_ALIVE && !psrti_place_at(c, i)->may_be_late)
            return;
    if (psrti_coord_form(c) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    c->formed = 1;
    psrti_coord_note(c, PSRT_LOG_INFO, "job assembled: %u workers, %u servers",
                     psrti_coord_live_workers(c), c->p.servers);
    psrti_coord_publish(c);
}

static void describe_process(place_t *p, const Psrt__Join *join)
{
    p->changed = 1;
    p->pid = join->pid;
    snprintf(p->host, sizeof p->host, "%.63s", *join->host ? join->host : "?");
    for (char *s = p->host; *s; s++)
        if ((unsigned char)*s <= ' ' || (unsigned char)*s == 0x7f) *s = '?';
}

/* A new process takes an empty place. */
static void admit(psrti_coord_t *c, place_t *p, peer_t *peer, const Psrt__Join *join)
{
    int server = PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER;
    char text[COORD_TEXT_MAX], name[32];
    const char *how = p->incarnation ? "again" : "late";

    if (!set_listeners(c, p, join, text, sizeof text)) {
        psrti_coord_refuse(c, peer->id, PSRT_ERR_REFUSED, text);
        return;
    }
    attach(c, p, peer);
    p->incarnation = ++c->next_incarnation;
    p->nonce = join->nonce;
    p->seen = c->run;
    p->returned = 1;
    memset(p->results, 0, sizeof p->results); /* requests of the life before */
    p->set_request = p->set_step = 0;
    describe_process(p, join);
    p->state = !server && c->formed ? PLACE_JOINING : PLACE_ALIVE;
    if (server) p->term++;
    if (server && c->formed) psrti_coord_server_reborn(c, p);
    psrti_coord_persist(c);
    psrti_coord_send_welcome(c, p);
    if (!c->formed) {
        psrti_coord_try_form(c);
        return;
    }
    psrti_coord_note(c, PSRT_LOG_INFO, "%s joined %s as incarnation %llu",
                     psrti_task_name(p->task, name), how, (unsigned long long)p->incarnation);
    if (server) {
        psrti_coord_tell_failed(c);
        psrti_coord_publish(c);
        psrti_coord_send_holds(c, p);
    } else {
        psrti_coord_next_join(c);
    }
}

/* What a task that lost its connection may have missed. */
static void resync(psrti_coord_t *c, place_t *p, uint64_t last_view)
{
    psrti_coord_send_welcome(c, p);
    if (!c->formed) return;
    if (p->state == PLACE_ALIVE) psrti_coord_send_view(c, p, last_view);
    if (PSRTI_TASK_ROLE(p->task) == PSRTI_SERVER) {
        psrti_coord_send_holds(c, p);
        if (p->owes_prepared) psrti_coord_send_prepare(c, p);
        psrti_coord_resync_set(c, p);
    }
}

static void newcomer(psrti_coord_t *c, place_t *p, peer_t *peer, const Psrt__Join *join)
{
    char text[COORD_TEXT_MAX], name[32];

    if (psrti_place_live(p) && p->nonce == join->nonce) {
        attach(c, p, peer);
        p->returned = 1;
        p->seen = c->run;
        if (!c->recovering) resync(c, p, join->view);
    } else if (psrti_place_live(p) || c->recovering) {
        park(c, p, peer->id, join);
    } else if (p->state == PLACE_FINISHED) {
        snprintf(text, sizeof text, "%s has already finished", psrti_task_name(p->task, name));
        psrti_coord_refuse(c, peer->id, PSRT_ERR_REFUSED, text);
    } else {
        admit(c, p, peer, join);
    }
}

/* The first in the queue gets it; the others wait for that one now. */
void psrti_coord_admit_parked(psrti_coord_t *c, place_t *p)
{
    while (!psrti_place_live(p) && !psrti_list_empty(&p->parked) && !c->ending) {
        parked_t *k = PSRTI_LIST_ENTRY(p->parked.next, parked_t, node);
        peer_t *peer = psrti_map_get(&c->peers, k->peer);
        psrti_list_remove(&k->node);
        if (peer) newcomer(c, p, peer, k->join);
        forget(k);
    }
}

static psrt_status_t reregister(psrti_coord_t *c, place_t *p, peer_t *peer, const Psrt__Join *join)
{
    char text[COORD_TEXT_MAX], name[32];

    if (p->incarnation == join->incarnation && p->state == PLACE_FINISHED) {
        psrti_coord_send_finish(c, peer->id, PSRT_OK, ""); /* the answer to its Leave was lost */
        return PSRT_OK;
    }
    if (p->incarnation != join->incarnation || !psrti_place_live(p)) {
        snprintf(text, sizeof text, "%s incarnation %llu was declared dead",
                 psrti_task_name(p->task, name), (unsigned long long)join->incarnation);
        psrti_coord_note(c, PSRT_LOG_WARN, "fenced %s incarnation %llu", name,
                         (unsigned long long)join->incarnation);
        psrti_coord_refuse(c, peer->id, PSRT_ERR_FENCED, text);
        return PSRT_OK;
    }
    if (!set_listeners(c, p, join, text, sizeof text)) {
        psrti_coord_refuse(c, peer->id, PSRT_ERR_REFUSED, text);
        return PSRT_OK;
    }
    describe_process(p, join);
    attach(c, p, peer);
    p->returned = 1;
    psrti_coord_sign_of_life(c, p);
    psrt_status_t st = psrti_coord_merge(c, p, join);
    if (st == PSRT_OK && !c->recovering) resync(c, p, join->view);
    return st;
}

static int join_is_right(psrti_coord_t *c, const peer_t *peer, const Psrt__Join *join, char *text,
                         size_t size)
{
    char name[32];

    if (join->task != peer->task) {
        snprintf(text, size, "joins as another task than it is connected as");
        return 0;
    }
    psrti_task_name(join->task, name);
    if (!psrti_coord_place(c, join->task)) {
        snprintf(text, size, "%s is not in the job, which has %u workers and %u servers", name,
                 c->p.workers, c->p.servers);
        return 0;
    }
    if (join->workers != c->p.workers || join->servers != c->p.servers) {
        snprintf(text, size,
                 "%s was told of %u workers and %u servers, the job has %u and %u (PSRT_WORKERS, "
                 "PSRT_SERVERS)",
                 name, join->workers, join->servers, c->p.workers, c->p.servers);
        return 0;
    }
    return 1;
}

psrt_status_t psrti_coord_on_join(psrti_coord_t *c, peer_t *peer, const Psrt__Join *join)
{
    char text[COORD_TEXT_MAX];
    place_t *p = psrti_coord_place(c, join->task);

    if (c->ending) {
        psrti_coord_send_finish(c, peer->id, c->end_status, c->end_text);
        if (!p || (p->nonce != join->nonce && p->incarnation != join->incarnation)) return PSRT_OK;
        attach(c, p, peer); /* and is waited for until it answers */
        return PSRT_OK;
    }
    if (!join_is_right(c, peer, join, text, sizeof text)) {
        psrti_coord_note(c, PSRT_LOG_WARN, "refused a task: %s", text);
        psrti_coord_refuse(c, peer->id, PSRT_ERR_REFUSED, text);
        return PSRT_OK;
    }
    if (join->incarnation) return reregister(c, p, peer, join);
    newcomer(c, p, peer, join);
    return PSRT_OK;
}
