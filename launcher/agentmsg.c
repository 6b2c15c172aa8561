/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/agentmsg.h"

#include <dirent.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <psrt/psrt.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/topology.h"
#include "base/util.h"
#include "launcher/job.h"

#define WORD "psrtboot"
#define WORD_LEN 8

/* ---- bootstrap ------------------------------------------------------------------------------- */

void psrti_bootstrap_write(const psrti_bootstrap_t *b, psrti_wire_out_t *w)
{
    psrti_wire_put_bytes(w, WORD, WORD_LEN);
    psrti_wire_put_u32(w, 0);
    size_t head = w->len;
    psrti_wire_put_u32(w, PSRTI_AGENT_PROTOCOL);
    psrti_wire_put_bytes(w, b->key.nonce, sizeof b->key.nonce);
    psrti_wire_put_bytes(w, b->key.secret, sizeof b->key.secret);
    psrti_wire_put_bytes(w, b->key.public_, sizeof b->key.public_);
    psrti_wire_put_u32(w, b->host);
    psrti_wire_put_u64(w, b->open_ms);
    psrti_wire_put_text(w, b->directory);
    psrti_wire_put_u32(w, b->port);
    psrti_wire_put_texts(w, b->addresses);
    psrti_put32(w->data + head - 4, (uint32_t)(w->len - head));
}

size_t psrti_bootstrap_length(const uint8_t head[PSRTI_BOOTSTRAP_HEAD])
{
    size_t len = psrti_get32(head + WORD_LEN);
    return memcmp(head, WORD, WORD_LEN) || len > PSRTI_BOOTSTRAP_MAX ? 0 : len;
}

static void read_exactly(psrti_wire_in_t *r, void *to, size_t len)
{
    const uint8_t *from = psrti_wire_get_bytes(r, len);
    if (from) memcpy(to, from, len);
}

psrt_status_t psrti_bootstrap_read(const uint8_t *rest, size_t len, psrti_bootstrap_t *b)
{
    psrti_wire_in_t r = { .at = rest, .end = rest + len };
    *b = (psrti_bootstrap_t){ 0 };
    uint32_t protocol = psrti_wire_get_u32(&r);
    if (protocol != PSRTI_AGENT_PROTOCOL)
        return psrti_fail(PSRT_ERR_INVALID,
                          "psrt-launch speaks protocol %u, this agent %d: install "
                          "the same version on all hosts",
                          protocol, PSRTI_AGENT_PROTOCOL);
    read_exactly(&r, b->key.nonce, sizeof b->key.nonce);
    read_exactly(&r, b->key.secret, sizeof b->key.secret);
    read_exactly(&r, b->key.public_, sizeof b->key.public_);
    b->host = psrti_wire_get_u32(&r);
    b->open_ms = psrti_wire_get_u64(&r);
    const char *directory = psrti_wire_get_text(&r);
    b->directory = psrti_xstrdup(directory ? directory : "/");
    b->port = (uint16_t)psrti_wire_get_u32(&r);
    b->addresses = psrti_wire_get_texts(&r);
    if (psrti_wire_is_done(&r) && b->addresses[0]) return PSRT_OK;
    psrti_bootstrap_clear(b);
    return psrti_fail(PSRT_ERR_INVALID, "the record from psrt-launch is damaged");
}

void psrti_bootstrap_clear(psrti_bootstrap_t *b)
{
    free(b->directory);
    psrti_argv_free(b->addresses);
    sodium_memzero(b, sizeof *b);
}

/* ---- facts ----------------------------------------------------------------------------------- */

uint64_t psrti_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * PSRTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* As the driver shows them; no library of the vendor is needed. */
static uint32_t count_gpus(void)
{
    DIR *dir = opendir("/proc/driver/nvidia/gpus");
    uint32_t count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return count;
}

void psrti_facts_gather(psrti_facts_t *f)
{
    struct rlimit memlock = { 0 };
    *f = (psrti_facts_t){ .cores = psrti_topology_cores(NULL),
                          .gpus = count_gpus(),
                          .wall_ns = psrti_wall_ns() };
    snprintf(f->version, sizeof f->version, "%s", PSRT_VERSION_STRING);
    gethostname(f->host, sizeof f->host - 1);
    getrlimit(RLIMIT_MEMLOCK, &memlock);
    f->memlock = memlock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : memlock.rlim_cur;
    f->netif_count = psrti_netif_list(f->netifs);
}

void psrti_facts_write(const psrti_facts_t *f, psrti_wire_out_t *w)
{
    psrti_wire_put_text(w, f->version);
    psrti_wire_put_text(w, f->host);
    psrti_wire_put_u32(w, f->cores);
    psrti_wire_put_u32(w, f->gpus);
    psrti_wire_put_u64(w, f->memlock);
    psrti_wire_put_u64(w, f->wall_ns);
    psrti_wire_put_u32(w, f->directory_error);
    psrti_wire_put_u32(w, f->probe_port);
    psrti_wire_put_u32(w, (uint32_t)f->netif_count);
    for (size_t i = 0; i < f->netif_count; i++) {
        psrti_wire_put_text(w, f->netifs[i].interface);
        psrti_wire_put_text(w, f->netifs[i].address);
        psrti_wire_put_u32(w, f->netifs[i].prefix);
    }
}

static void read_into(psrti_wire_in_t *r, char *buf, size_t size)
{
    const char *text = psrti_wire_get_text(r);
    snprintf(buf, size, "%s", text ? text : "");
}

void psrti_facts_read(psrti_wire_in_t *r, psrti_facts_t *f)
{
    *f = (psrti_facts_t){ 0 };
    read_into(r, f->version, sizeof f->version);
    read_into(r, f->host, sizeof f->host);
    f->cores = psrti_wire_get_u32(r);
    f->gpus = psrti_wire_get_u32(r);
    f->memlock = psrti_wire_get_u64(r);
    f->wall_ns = psrti_wire_get_u64(r);
    f->directory_error = psrti_wire_get_u32(r);
    f->probe_port = (uint16_t)psrti_wire_get_u32(r);
    f->netif_count = psrti_wire_get_u32(r);
    if (f->netif_count > PSRTI_NETIF_MAX) {
        r->bad = 1;
        f->netif_count = 0;
    }
    for (size_t i = 0; i < f->netif_count; i++) {
        read_into(r, f->netifs[i].interface, sizeof f->netifs[i].interface);
        read_into(r, f->netifs[i].address, sizeof f->netifs[i].address);
        f->netifs[i].prefix = psrti_wire_get_u32(r);
    }
}
