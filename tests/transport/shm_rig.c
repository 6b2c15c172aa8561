/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm_rig.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static const psrt_transport_ops_t *const shm = &psrti_transport_shm;

rig_t rig;

static void on_log(void *arg, psrt_log_level_t level, const char *line)
{
    (void)arg;
    if (level > PSRT_LOG_WARN) return;
    rig.warnings++;
    snprintf(rig.warning, sizeof rig.warning, "%s", line);
}

static void on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    side_t *side = arg;
    if (event == PSRT_EP_UP) {
        side->up++;
        side->ep = ep;
    } else if (event == PSRT_EP_WRITABLE) {
        side->writable++;
    } else {
        side->lost++;
        side->why = status;
        if (side->keep_lost) return;
        if (side->ep == ep) side->ep = NULL;
        shm->ep_close(ep);
    }
}

int readable(int fd)
{
    struct pollfd pfd = { .fd = fd, .events = POLLIN };
    return poll(&pfd, 1, 0) == 1;
}

static psrt_rx_t on_msg(void *arg, psrt_msg_t *msg)
{
    side_t *side = arg;
    side->messages++;
    side->ready += side->watched >= 0 && readable(side->watched);
    free(side->last);
    side->last = malloc(msg->len + 1);
    side->last_len = msg->len;
    side->last_type = msg->hdr.type;
    if (msg->len > 0) memcpy(side->last, msg->data, msg->len);
    if (side->verdict != PSRT_RX_HOLD || msg->len == 0) return PSRT_RX_DONE;
    cr_assert(side->held_count < RIG_HELD);
    side->held[side->held_count++] = *msg;
    return PSRT_RX_HOLD;
}

psrt_status_t side_open(side_t *side, const char *dir, const uint8_t nonce[16], int listen)
{
    psrt_iface_params_t params = { .size = sizeof params,
                                   .on_msg = on_msg,
                                   .on_ep = on_ep,
                                   .arg = side,
                                   .listen = listen,
                                   .listen_fd = -1,
                                   .job_dir = dir,
                                   .job_nonce = nonce,
                                   .task = listen ? 2 : 1,
                                   .max_message = rig.max_message,
                                   .arena = rig.arena,
                                   .window = rig.window };
    memset(side, 0, sizeof *side);
    side->watched = -1;
    psrt_status_t status = shm->iface_open(&params, &side->iface);
    if (status == PSRT_OK && listen)
        cr_assert_eq(shm->iface_addr(side->iface, side->addr, sizeof side->addr), PSRT_OK);
    return status;
}

void side_close(side_t *side)
{
    if (side->iface) shm->iface_close(side->iface);
    free(side->last);
    side->iface = NULL;
    side->last = NULL;
    side->ep = NULL;
}

void rig_open(void)
{
    psrt_log_set_sink(on_log, NULL);
    rig.warnings = 0;
    snprintf(rig.dir, sizeof rig.dir, "/tmp/psrt-shm-XXXXXX");
    cr_assert(mkdtemp(rig.dir) != NULL, "%s", strerror(errno));
    pattern(rig.nonce, sizeof rig.nonce, (uint64_t)getpid());
    cr_assert_eq(side_open(&rig.a, rig.dir, rig.nonce, 0), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(side_open(&rig.b, rig.dir, rig.nonce, 1), PSRT_OK, "%s", psrt_last_error());
}

void rig_connect(void)
{
    psrt_ep_t *ep;
    unsigned a = rig.a.up, b = rig.b.up;
    cr_assert_eq(shm->ep_open(rig.a.iface, rig.b.addr, &ep), PSRT_OK);
    RIG_UNTIL(rig.a.up > a && rig.b.up > b);
    cr_assert(rig.a.ep == ep);
}

void rig_close(void)
{
    side_close(&rig.a);
    side_close(&rig.b);
    cr_assert_eq(rmdir(rig.dir), 0, "left in the job directory: %s", strerror(errno));
    cr_assert_eq(mapped_segments(), 0);
    psrt_log_set_sink(NULL, NULL);
}

void rig_pump(void)
{
    if (rig.a.iface) shm->progress(rig.a.iface);
    if (rig.b.iface) shm->progress(rig.b.iface);
}

typedef struct counted_tx {
    psrt_tx_t tx;
    side_t *side;
} counted_tx_t;

static void on_done(psrt_tx_t *tx, psrt_status_t status)
{
    counted_tx_t *counted = PSRTI_CONTAINER_OF(tx, counted_tx_t, tx);
    counted->side->done++;
    counted->side->done_status = status;
    free(counted);
}

psrt_status_t side_send(side_t *side, uint8_t type, const void *data, uint64_t len)
{
    psrt_hdr_t hdr = { .type = type, .length = len };
    if (type != PSRTI_T_CTRL) {
        hdr.dtype = PSRT_F32;
        hdr.length = len / sizeof(float);
    }
    counted_tx_t *tx = malloc(sizeof *tx);
    *tx = (counted_tx_t){ .tx.done = on_done, .side = side };
    uint64_t until = psrti_now_ns() + RIG_DEADLINE_NS;
    psrt_status_t status;
    while ((status = shm->send(side->ep, &hdr, data, len, 0, &tx->tx)) == PSRT_ERR_AGAIN) {
        cr_assert(psrti_now_ns() < until, "AGAIN for too long");
        rig_pump();
    }
    if (status != PSRT_IN_PROGRESS) free(tx);
    return status;
}

void rig_check_traffic(void)
{
    uint8_t data[1000];
    unsigned before = rig.b.messages;
    pattern(data, sizeof data, before);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, data, sizeof data), PSRT_OK);
    RIG_UNTIL(rig.b.messages == before + 1);
    cr_assert_eq(rig.b.last_len, sizeof data);
    cr_assert_eq(memcmp(rig.b.last, data, sizeof data), 0);
}

void pattern(void *data, uint64_t len, uint64_t seed)
{
    uint8_t *out = data;
    for (uint64_t i = 0; i < len; i++)
        out[i] = (uint8_t)((i * 2654435761u + seed * 40503u + (i >> 8)) >> 3);
}

int has_pattern(const void *data, uint64_t len, uint64_t seed)
{
    uint8_t *expected = malloc(len);
    pattern(expected, len, seed);
    int same = memcmp(data, expected, len) == 0;
    free(expected);
    return same;
}

unsigned open_fds(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    cr_assert(dir != NULL);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

unsigned mapped_segments(void)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    cr_assert(file != NULL);
    while (fgets(line, sizeof line, file))
        count += strstr(line, "memfd:psrt") != NULL;
    fclose(file);
    return count;
}
