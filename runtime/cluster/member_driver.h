/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by member.c (the thread that owns the net and the core) and member_calls.c (what other
 * threads call). Other threads put commands in a queue and wake the thread. */
#ifndef PSRTI_MEMBER_DRIVER_H
#define PSRTI_MEMBER_DRIVER_H

#include <pthread.h>

#include "base/list.h"
#include "base/log.h"
#include "runtime/cluster/ctrl_link.h"
#include "runtime/cluster/member_core.h"

typedef enum command_kind {
    CMD_DECLARE,
    CMD_BARRIER,
    CMD_WITHDRAW,
    CMD_USED,
    CMD_HELD,
    CMD_PREPARED,
    CMD_SET,
    CMD_SET_PREPARED,
    CMD_SET_ENDED,
    CMD_LEAVE
} command_kind_t;

/* Arrays of a command lie behind it in the same block. */
typedef struct command {
    psrti_list_t node;
    command_kind_t kind;
    uint64_t number; /* request, view, or of a set */
    uint32_t value;  /* table, count, failed */
    double set_to;
    uint64_t step; /* of a set */
    psrt_status_t status;
    size_t count;
    const void *first;
    const uint64_t *second;
} command_t;

/* On the stack of the thread that waits. */
typedef struct waiter {
    psrti_list_t node;
    uint64_t request;
    int done;
    psrt_status_t status;
    uint64_t step; /* of a set */
    char text[PSRTI_ERROR_MAX];
} waiter_t;

struct psrti_member {
    psrti_member_params_t p;
    char coordinator[1][PSRT_ADDR_MAX];
    char host[64];
    psrti_view_owner_t *threads;
    psrti_net_t *net;          /* of the thread */
    psrti_member_core_t *core; /* of the thread */
    psrti_ctrl_link_t ctrl;    /* of the thread */
    int dial_failed;           /* of the thread */
    char dial_text[PSRTI_ERROR_MAX];
    atomic_uint_least64_t seen;
    atomic_int stop;
    pthread_t thread;
    int running;

    pthread_mutex_t lock; /* for all that follows; never held during callbacks */
    pthread_cond_t changed;
    psrti_list_t commands, waiters;
    uint64_t next_request;
    int ready, ended;
    psrt_status_t status;
    char text[PSRTI_ERROR_MAX];
};

void psrti_member_command_free(command_t *cmd);

#endif
