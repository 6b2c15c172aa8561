/* SPDX-License-Identifier: Apache-2.0 */
/* A guardian is the small process between the launcher and one task. It is the subreaper of the
 * task's whole tree, so nothing the task starts can leave that tree, and it ends the tree when the
 * launcher says so or is no longer there. README.md has the whole design. */
#ifndef PSRTI_LAUNCHER_GUARDIAN_H
#define PSRTI_LAUNCHER_GUARDIAN_H

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include "launcher/bind.h"

/* Launcher to guardian: one byte a packet. The end of the connection means PSRTI_GUARDIAN_TERM, and
 * that the guardian is also to clear up the job directory. */
enum {
    PSRTI_GUARDIAN_TERM = 'T',
    PSRTI_GUARDIAN_KILL = 'K',
    PSRTI_GUARDIAN_USR1 = '1', /* to the task's first process only */
    PSRTI_GUARDIAN_USR2 = '2'
};

/* Guardian to launcher. After it, the end of the connection means that nothing of the tree is left;
 * without another event than STARTED before it, that the guardian was killed. */
typedef enum psrti_guardian_event {
    PSRTI_GUARDIAN_STARTED,    /* pid */
    PSRTI_GUARDIAN_CANNOT_RUN, /* value: errno */
    PSRTI_GUARDIAN_NO_DIRECTORY,
    PSRTI_GUARDIAN_NO_VIRTUALENV,
    PSRTI_GUARDIAN_EXITED,  /* value: exit code */
    PSRTI_GUARDIAN_SIGNALED /* value: signal */
} psrti_guardian_event_t;

typedef struct psrti_guardian_msg {
    psrti_guardian_event_t event;
    int32_t pid, value;
    uint64_t time_ns; /* psrti_now_ns when it happened */
} psrti_guardian_msg_t;

/* What the launcher found at its own start and tasks are to find at theirs. */
typedef struct psrti_inherited {
    sigset_t ignored; /* signals that were ignored */
    sigset_t blocked;
    struct rlimit files;
} psrti_inherited_t;

typedef struct psrti_guardian {
    const char *name; /* of the task */
    char *const *argv, *const *env;
    int control;        /* SOCK_SEQPACKET */
    int out, err;       /* the task's */
    const int *sockets; /* from PSRTI_LISTEN_FD on in the task */
    unsigned socket_count;
    const uint16_t *ports; /* that the task is going to bind itself */
    unsigned port_count;
    const char *directory;          /* NULL: the launcher's */
    int virtualenv;                 /* that of `env` is to be there */
    const psrti_binding_t *binding; /* NULL: not bound */
    const char *job_dir;
    uint64_t grace_ns;
    const psrti_inherited_t *inherited;
} psrti_guardian_t;

/* In the child of a fork of the launcher. */
_Noreturn void psrti_guardian_run(const psrti_guardian_t *guardian);

#endif
