/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

/* Highest score first. */
static const psrt_transport_ops_t *const built_in[] = {
    &psrti_transport_inproc,
    &psrti_transport_shm,
    &psrti_transport_zmq,
};

/* The checked copy of the table, made once: it never changes afterwards. */
static const psrt_transport_ops_t *registered[PSRTI_COUNT(built_in) + 1];
static pthread_once_t register_once = PTHREAD_ONCE_INIT;

/* Slots up to and including wait_fd are required; a smaller `size` cannot hold them. */
static const char *missing_slot(const psrt_transport_ops_t *ops)
{
    if (ops->size < offsetof(psrt_transport_ops_t, mem_alloc)) return "size";
    if (!ops->name) return "name";
    if (!ops->probe) return "probe";
    if (!ops->iface_open) return "iface_open";
    if (!ops->iface_close) return "iface_close";
    if (!ops->iface_addr) return "iface_addr";
    if (!ops->reachable) return "reachable";
    if (!ops->ep_open) return "ep_open";
    if (!ops->ep_close) return "ep_close";
    if (!ops->send) return "send";
    if (!ops->release) return "release";
    if (!ops->progress) return "progress";
    if (!ops->arm) return "arm";
    if (!ops->wait_fd) return "wait_fd";
    return NULL;
}

static void register_all(void)
{
    size_t count = 0;
    for (size_t i = 0; i < PSRTI_COUNT(built_in); i++) {
        const psrt_transport_ops_t *ops = built_in[i];
        const char *missing = missing_slot(ops);
        if (missing)
            psrti_error("transport %s: not registered, %s is missing",
                        ops->name ? ops->name : "without a name", missing);
        else
            registered[count++] = ops;
    }
}

const psrt_transport_ops_t *const *psrti_transport_all(void)
{
    pthread_once(&register_once, register_all);
    return registered;
}

const psrt_transport_ops_t *psrti_transport_find(const char *name)
{
    for (const psrt_transport_ops_t *const *ops = psrti_transport_all(); *ops; ops++)
        if (strcmp((*ops)->name, name) == 0) return *ops;
    return NULL;
}
