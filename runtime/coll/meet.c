/* SPDX-License-Identifier: Apache-2.0 */
/* How the members of a communicator find one another. Each sends its OPEN to every other one; the first that fits is
 * taken. An OPEN lives as long as its link. A shrink proposes the members that live, and anew when those change. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "runtime/coll/coll_int.h"

#define OPENS_MAX 4096 /* of a worker that nothing here asked for */
#define OPEN_BYTES 16

typedef psrti_comm_t comm_t;

static uint64_t key_of(const comm_t *comm)
{
    size_t name = strlen(comm->name), len = comm->size * 4 + name;
    uint64_t key = 0;
    uint8_t *text = malloc(len + 1);
    if (!text) return 0; /* creations with the key 0 fail */
    for (uint32_t m = 0; m < comm->size; m++)
        psrti_put32(text + 4 * m, comm->ranks[m]);
    memcpy(text + 4 * comm->size, comm->name, name);
    key = psrti_hash_bytes(text, len);
    if (comm->origin) key = psrti_mix64(key ^ comm->origin);
    free(text);
    return key ? key : 1;
}

static void send_open(comm_t *comm, uint32_t member)
{
    const psrti_coll_params_t *p = &comm->coll->p;
    uint8_t where[OPEN_BYTES];
    psrt_hdr_t hdr = { .table = (uint32_t)p->message,
                       .seq = comm->key,
                       .offset = comm->handle,
                       .step = p->chunk,
                       .term = (uint32_t)PSRTI_MIN(p->eager, UINT32_MAX),
                       .seq_floor = PSRTI_COLL_OPEN };
    psrti_put64(where, p->host);
    psrti_put32(where + 8, p->place);
    psrti_put32(where + 12, psrti_comm_rules(comm)->hash);
    psrti_peer_tell(comm->coll, comm->ranks[member], &hdr, where, sizeof where);
}

/* 0: it is none. */
static int read_card(const psrt_msg_t *msg, psrti_collcard_t *card)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    if (!hdr->offset || hdr->offset > UINT32_MAX || msg->len != OPEN_BYTES || !msg->data) return 0;
    *card = (psrti_collcard_t){ .handle = (uint32_t)hdr->offset,
                                .message = hdr->table,
                                .chunk = hdr->step,
                                .eager = hdr->term,
                                .host = psrti_get64(msg->data),
                                .place = psrti_get32((const uint8_t *)msg->data + 8),
                                .tune = psrti_get32((const uint8_t *)msg->data + 12) };
    return 1;
}

static int view_calls_alive(const psrti_coll_t *coll, uint32_t rank)
{
    return coll->view && rank < coll->view->nworkers && coll->view->workers[rank].alive;
}

static int is_alive(const comm_t *comm, uint32_t member)
{
    return view_calls_alive(comm->coll, comm->ranks[member]);
}

/* All have come. */
static void assembled(comm_t *comm)
{
    comm->state = PSRTI_COMM_READY;
    psrti_list_remove(&comm->meeting_node);
    psrti_collop_t *op = comm->creation;
    if (psrti_comm_find_hosts(comm) != PSRT_OK) {
        psrti_comm_fail(comm, PSRT_ERR_NO_MEMORY, psrt_status_text(PSRT_ERR_NO_MEMORY));
        return;
    }
    comm->creation = NULL;
    psrti_coll_end(op, PSRT_OK, NULL);
}

/* The first number that differs: its text is added. 0: none does. */
static int differs(const comm_t *comm, const psrti_collcard_t *card, char *text, size_t *at)
{
    const psrti_coll_params_t *p = &comm->coll->p;
    const struct {
        const char *name;
        uint64_t theirs, ours;
    } numbers[] = { { "PSRT_COLL_CHUNK", card->chunk, p->chunk },
                    { "PSRT_COLL_EAGER", card->eager, PSRTI_MIN(p->eager, UINT32_MAX) },
                    { "PSRT_MAX_MESSAGE, of which up to 16 MiB count,", card->message,
                      p->message } };
    for (size_t i = 0; i < PSRTI_COUNT(numbers); i++) {
        if (numbers[i].theirs == numbers[i].ours) continue;
        (void)psrti_append(text, PSRTI_COLL_TEXT, at,
                           "%s %llu, rank %u has %llu; it must be the same on all ranks",
                           numbers[i].name, (unsigned long long)numbers[i].theirs, comm->rank,
                           (unsigned long long)numbers[i].ours);
        return 1;
    }
    return 0;
}

static int has_same_settings(comm_t *comm, uint32_t member, const psrti_collcard_t *card)
{
    char text[PSRTI_COLL_TEXT], name[128];
    size_t at = 0;
    int same_rules = card->tune == psrti_comm_rules(comm)->hash;
    (void)psrti_append(text, sizeof text, &at, "%s: %s has ", comm->title,
                       psrti_member_name(comm, member, name));
    if (!same_rules)
        (void)psrti_append(text, sizeof text, &at,
                           "other rules for algorithms than rank %u: PSRT_COLL_TUNE, what is in a "
                           "file that it names, or `tune` of psrt_comm_params_t, must be the same "
                           "on all ranks",
                           comm->rank);
    else if (!differs(comm, card, text, &at))
        return 1;
    psrti_comm_fail(comm, PSRT_ERR_MISMATCH, text);
    return 0;
}

static void take_open(comm_t *comm, uint32_t member, const psrti_collcard_t *card)
{
    psrti_collmember_t *m = &comm->members[member];
    m->handle = card->handle;
    m->host = card->host;
    m->place = card->place;
    m->incarnation = comm->coll->peers[comm->ranks[member]].incarnation;
    m->seen_alive = 1;
    comm->has_moved = 1;
    if (has_same_settings(comm, member, card) && --comm->missing == 0) assembled(comm);
}

/* The oldest OPEN of this worker that fits. */
static void look_for_open(comm_t *comm, uint32_t member)
{
    psrti_collpeer_t *peer = &comm->coll->peers[comm->ranks[member]];
    for (psrti_list_t *n = peer->opens.next; n != &peer->opens; n = n->next) {
        psrti_collopen_t *open = PSRTI_LIST_ENTRY(n, psrti_collopen_t, node);
        if (open->key != comm->key) continue;
        psrti_list_remove(n);
        peer->nopens--;
        take_open(comm, member, &open->card);
        free(open);
        return;
    }
}

psrt_rx_t psrti_meet_open(psrti_coll_t *coll, uint32_t rank, const psrt_msg_t *msg)
{
    psrti_collpeer_t *peer = &coll->peers[rank];
    psrti_collcard_t card;
    if (!read_card(msg, &card) || peer->nopens >= OPENS_MAX) return PSRT_RX_BAD;
    for (psrti_list_t *n = coll->meeting.next; n != &coll->meeting; n = n->next) {
        comm_t *comm = PSRTI_LIST_ENTRY(n, comm_t, meeting_node);
        uint32_t member = comm->place[rank];
        if (comm->key != msg->hdr.seq || member == PSRTI_COLL_NOBODY ||
            comm->members[member].handle)
            continue;
        take_open(comm, member, &card);
        return PSRT_RX_DONE;
    }
    psrti_collopen_t *open = malloc(sizeof *open);
    if (!open) return PSRT_RX_BAD; /* an OPEN that is lost would hang the other side */
    open->key = msg->hdr.seq;
    open->card = card;
    psrti_list_push(&peer->opens, &open->node);
    peer->nopens++;
    return PSRT_RX_DONE;
}

void psrti_meet_send_opens(psrti_coll_t *coll, uint32_t rank)
{
    for (psrti_list_t *n = coll->meeting.next; n != &coll->meeting; n = n->next) {
        comm_t *comm = PSRTI_LIST_ENTRY(n, comm_t, meeting_node);
        if (comm->place[rank] != PSRTI_COLL_NOBODY) send_open(comm, comm->place[rank]);
    }
}

/* What the member said is void: it says it again over its next link. */
void psrti_meet_lost(comm_t *comm, uint32_t member)
{
    psrti_collmember_t *m = &comm->members[member];
    if (m->handle) comm->missing++;
    m->handle = 0;
    psrti_comm_drop_early(comm, member);
}

/* The communicator of ours that the sender had met. */
static comm_t *named(const psrti_coll_t *coll, uint32_t rank, const psrt_hdr_t *hdr)
{
    comm_t *comm = hdr->table ? psrti_map_get(&coll->by_handle, hdr->table) : NULL;
    uint32_t member = comm ? comm->place[rank] : PSRTI_COLL_NOBODY;
    if (member == PSRTI_COLL_NOBODY) return NULL;
    uint32_t known = comm->members[member].handle; /* 0: its OPEN was lost with a link */
    return !known || known == hdr->offset ? comm : NULL;
}

/* What was opened with this handle is over there: a communicator, or an OPEN that nobody took. */
void psrti_meet_withdrawn(psrti_coll_t *coll, uint32_t rank, const psrt_hdr_t *hdr,
                          const char *data)
{
    psrti_collpeer_t *peer = &coll->peers[rank];
    comm_t *met = named(coll, rank, hdr);
    if (met) {
        psrti_comm_aborted(met, met->place[rank], hdr, data);
        return;
    }
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &peer->opens)
    {
        psrti_collopen_t *open = PSRTI_LIST_ENTRY(it, psrti_collopen_t, node);
        if (open->card.handle != hdr->offset) continue;
        psrti_list_remove(it);
        peer->nopens--;
        free(open);
        return;
    }
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->comms)
    {
        comm_t *comm = PSRTI_LIST_ENTRY(it, comm_t, node);
        uint32_t member = comm->place[rank];
        if (member == PSRTI_COLL_NOBODY || comm->members[member].handle != hdr->offset) continue;
        psrti_comm_aborted(comm, member, hdr, data);
        return;
    }
}

/* ---- proposals ---------------------------------------------------------------------------------- */

/* Speaks to all members. */
static void propose(comm_t *comm)
{
    comm->missing = comm->size - 1;
    psrti_comm_want(comm);
    for (uint32_t m = 0; m < comm->size; m++) {
        if (m == comm->rank) continue;
        comm->members[m].seen_alive = (uint8_t)is_alive(comm, m);
        send_open(comm, m);
    }
    for (uint32_t m = 0; m < comm->size && comm->state == PSRTI_COMM_MEETING; m++)
        if (m != comm->rank) look_for_open(comm, m);
    if (comm->size == 1) assembled(comm);
}

/* The list of members and what depends on it. */
static psrt_status_t set_members(comm_t *comm, const uint32_t *ranks, uint32_t count)
{
    uint32_t workers = comm->coll->p.workers;
    uint32_t *list = calloc(count + 1, sizeof *list), *place = calloc(workers + 1, sizeof *place);
    psrti_collmember_t *members = calloc(count + 1, sizeof *members);
    if (!list || !place || !members) {
        free(list);
        free(place);
        free(members);
        return PSRT_ERR_NO_MEMORY;
    }
    free(comm->ranks);
    free(comm->place);
    free(comm->members);
    memcpy(list, ranks, count * sizeof *list);
    memset(place, 0xff, workers * sizeof *place);
    for (uint32_t m = 0; m < count; m++)
        place[ranks[m]] = m;
    comm->ranks = list;
    comm->place = place;
    comm->members = members;
    comm->size = count;
    comm->rank = place[comm->coll->p.rank];
    if (*comm->name)
        snprintf(comm->title, sizeof comm->title, "communicator %s", comm->name);
    else
        snprintf(comm->title, sizeof comm->title, "communicator of %u ranks", count);
    comm->key = key_of(comm);
    comm->early_max = psrti_comm_early_max(comm);
    return comm->key ? PSRT_OK : PSRT_ERR_NO_MEMORY;
}

static int is_list(const psrti_coll_t *coll, const uint32_t *ranks, uint32_t count)
{
    uint32_t own = 0;
    uint8_t *seen = count && count <= coll->p.workers ? calloc(coll->p.workers, 1) : NULL;
    for (uint32_t m = 0; seen && m < count; m++) {
        if (ranks[m] >= coll->p.workers || seen[ranks[m]]++) {
            free(seen);
            return 0;
        }
        own += ranks[m] == coll->p.rank;
    }
    free(seen);
    return own == 1;
}

static comm_t *comm_new(psrti_coll_t *coll, const char *name, psrti_collop_t *op)
{
    comm_t *comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    comm->coll = coll;
    comm->creation = op;
    comm->name = strdup(name ? name : "");
    psrti_list_init(&comm->node);
    psrti_list_init(&comm->meeting_node);
    psrti_list_init(&comm->busy_node);
    psrti_list_init(&comm->scheds);
    psrti_list_init(&comm->dying);
    psrti_lane_init(&comm->lane, comm->slots, PSRTI_COLL_AHEAD);
    op->comm = comm;
    op->status = PSRT_IN_PROGRESS;
    psrti_list_init(&op->node);
    return comm;
}

static psrt_status_t take_handle(comm_t *comm)
{
    psrti_coll_t *coll = comm->coll;
    psrt_status_t status = psrti_map_put(&coll->by_handle, coll->last_handle + 1, comm);
    if (status == PSRT_OK) comm->handle = ++coll->last_handle;
    return status;
}

static psrt_status_t set_tune(comm_t *comm, const psrti_coll_tune_t *tune)
{
    if (!tune) return PSRT_OK;
    comm->tune = malloc(sizeof *tune);
    if (!comm->tune) return PSRT_ERR_NO_MEMORY;
    *comm->tune = *tune;
    return PSRT_OK;
}

/* What a communicator is made of. */
typedef struct spec {
    const psrti_coll_tune_t *tune;
    const char *name;
    const uint32_t *ranks;
    uint32_t count;
    uint64_t origin;
} spec_t;

static psrt_status_t comm_begin(psrti_coll_t *coll, const spec_t *spec, psrti_collop_t *op,
                                comm_t **comm_p)
{
    comm_t *comm = comm_new(coll, spec->name, op);
    psrt_status_t status = PSRT_ERR_NO_MEMORY;
    if (comm && comm->name) {
        comm->origin = spec->origin;
        status = set_members(comm, spec->ranks, spec->count);
    }
    if (status == PSRT_OK) status = set_tune(comm, spec->tune);
    if (status == PSRT_OK) status = take_handle(comm);
    if (status != PSRT_OK) {
        if (comm) psrti_comm_forget(comm);
        return status;
    }
    psrti_list_push(&coll->comms, &comm->node);
    psrti_list_push(&coll->meeting, &comm->meeting_node);
    psrti_comm_busy(comm);
    *comm_p = comm;
    return PSRT_OK;
}

static psrt_status_t comm_make(psrti_coll_t *coll, const spec_t *spec, psrti_collop_t *op,
                               comm_t **comm_p)
{
    *comm_p = NULL;
    if ((spec->name && strlen(spec->name) > PSRTI_COLL_NAME) ||
        !is_list(coll, spec->ranks, spec->count))
        return PSRT_ERR_INVALID;
    psrt_status_t status = comm_begin(coll, spec, op, comm_p);
    if (status != PSRT_OK) return status;
    if (coll->status)
        psrti_comm_fail(*comm_p, coll->status, coll->text);
    else
        propose(*comm_p);
    return PSRT_OK;
}

psrt_status_t psrti_comm_create(psrti_coll_t *coll, const char *name, const uint32_t *ranks,
                                uint32_t count, psrti_collop_t *op, comm_t **comm_p)
{
    return psrti_comm_create_tuned(coll, NULL, name, ranks, count, op, comm_p);
}

psrt_status_t psrti_comm_create_tuned(psrti_coll_t *coll, const psrti_coll_tune_t *tune,
                                      const char *name, const uint32_t *ranks, uint32_t count,
                                      psrti_collop_t *op, comm_t **comm_p)
{
    spec_t spec = { .tune = tune, .name = name, .ranks = ranks, .count = count };
    return comm_make(coll, &spec, op, comm_p);
}

psrt_status_t psrti_comm_derive(comm_t *parent, const uint32_t *ranks, uint32_t count,
                                psrti_collop_t *op, comm_t **comm_p)
{
    spec_t spec = { .tune = parent->tune,
                    .name = parent->name,
                    .ranks = ranks,
                    .count = count,
                    .origin = psrti_mix64(parent->key) };
    return comm_make(parent->coll, &spec, op, comm_p);
}

/* ---- shrink ------------------------------------------------------------------------------------- */

static uint32_t survivors(const comm_t *comm, uint32_t *list)
{
    const psrti_coll_t *coll = comm->coll;
    uint32_t n = 0;
    for (uint32_t i = 0; i < comm->nwider; i++) {
        psrti_collsurvivor_t s = comm->wider[i];
        int lives = s.incarnation ? psrti_coll_lives(coll->view, s.rank, s.incarnation)
                                  : view_calls_alive(coll, s.rank);
        if (s.rank == coll->p.rank || lives) list[n++] = s.rank;
    }
    return n;
}

static void withdraw(comm_t *comm)
{
    static const char text[] = "proposed anew, since a member died";
    for (uint32_t m = 0; m < comm->size; m++) {
        psrt_hdr_t hdr = { .table = comm->members[m].handle,
                           .offset = comm->handle,
                           .seq_floor = PSRTI_COLL_ABORT,
                           .status = (uint8_t)-PSRT_ERR_PEER_LOST };
        if (m == comm->rank) continue;
        psrti_peer_tell(comm->coll, comm->ranks[m], &hdr, text, sizeof text - 1);
    }
    psrti_map_remove(&comm->coll->by_handle, comm->handle);
}

static void propose_anew(comm_t *comm, const uint32_t *list, uint32_t n)
{
    withdraw(comm);
    psrti_comm_unwant(comm);
    psrt_status_t status = take_handle(comm);
    if (status == PSRT_OK) status = set_members(comm, list, n);
    if (status == PSRT_OK) {
        propose(comm);
        return;
    }
    psrti_comm_want(comm);
    psrti_comm_fail(comm, status, "out of memory while the survivors gathered");
}

static void follow_view(comm_t *comm)
{
    uint32_t *list = malloc(comm->nwider * sizeof *list);
    if (!list) return; /* the next view is another chance, and time runs out */
    uint32_t n = survivors(comm, list);
    if (n != comm->size || memcmp(list, comm->ranks, n * sizeof *list) != 0)
        propose_anew(comm, list, n);
    free(list);
}

psrt_status_t psrti_comm_shrink(comm_t *comm, psrti_collop_t *op, comm_t **comm_p)
{
    *comm_p = NULL;
    comm_t *next = NULL;
    spec_t spec = { .tune = comm->tune,
                    .name = comm->name,
                    .ranks = comm->ranks,
                    .count = comm->size,
                    .origin = psrti_mix64(~comm->key) };
    psrt_status_t status = comm_begin(comm->coll, &spec, op, &next);
    if (status != PSRT_OK) return status;
    uint32_t *list = malloc(comm->size * sizeof *list);
    next->wider = malloc(comm->size * sizeof *next->wider);
    if (!list || !next->wider) {
        free(list);
        psrti_comm_forget(next);
        return PSRT_ERR_NO_MEMORY;
    }
    for (uint32_t m = 0; m < comm->size; m++)
        next->wider[m] = (psrti_collsurvivor_t){ comm->ranks[m], comm->members[m].incarnation };
    next->nwider = comm->size;
    status = set_members(next, list, survivors(next, list));
    free(list);
    if (status != PSRT_OK) {
        psrti_comm_forget(next);
        return status;
    }
    *comm_p = next;
    if (comm->coll->status)
        psrti_comm_fail(next, comm->coll->status, comm->coll->text);
    else
        propose(next);
    return PSRT_OK;
}

/* ---- the view ----------------------------------------------------------------------------------- */

static void died(comm_t *comm, uint32_t member, const psrti_view_worker_t *w)
{
    char text[PSRTI_COLL_TEXT], name[128];
    const char *what = w->finished ? "left the job" : w->alive ? "was started anew" : "died";
    snprintf(text, sizeof text, "%s: %s %s", comm->title, psrti_member_name(comm, member, name),
             what);
    psrti_comm_fail(comm, PSRT_ERR_PEER_LOST, text);
}

/* While members gather, one that was dead from the beginning may be started again; one that dies now took part. */
static int is_lost_in_meeting(const psrti_collmember_t *m, const psrti_view_worker_t *w)
{
    return !w->alive && (w->finished || m->seen_alive);
}

/* A view can be older than the link. */
static int is_lost(const psrti_collmember_t *m, const psrti_view_worker_t *w)
{
    return (!w->alive && w->incarnation >= m->incarnation) || w->incarnation > m->incarnation;
}

/* Who leaves the job says CLOSE before, over its link; the view may be faster. */
static int has_gone_in_order(const comm_t *comm, uint32_t m, const psrti_view_worker_t *w)
{
    const psrti_collmember_t *member = &comm->members[m];
    int is_this_life = w->finished && w->incarnation == member->incarnation;
    return member->is_closed || (is_this_life && comm->coll->peers[comm->ranks[m]].up);
}

void psrti_comm_view(comm_t *comm)
{
    const psrti_view_t *view = comm->coll->view;
    if (comm->state == PSRTI_COMM_MEETING && comm->wider) {
        follow_view(comm);
        return;
    }
    for (uint32_t m = 0; m < comm->size && comm->state != PSRTI_COMM_FAILED; m++) {
        psrti_collmember_t *member = &comm->members[m];
        if (m == comm->rank || comm->ranks[m] >= view->nworkers) continue;
        const psrti_view_worker_t *w = &view->workers[comm->ranks[m]];
        int lost = comm->state == PSRTI_COMM_MEETING
                       ? is_lost_in_meeting(member, w)
                       : is_lost(member, w) && !has_gone_in_order(comm, m, w);
        if (w->alive) member->seen_alive = 1;
        if (lost) died(comm, m, w);
    }
}
