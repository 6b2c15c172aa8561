/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller in psrt-launch and psrt-agent say to each other. Each message of their channel
 * begins with a byte of the enum below; launcher/wire.h has the encoding of the values behind it.
 * README.md shows the course of a job. */
#ifndef PSRTI_LAUNCHER_AGENTMSG_H
#define PSRTI_LAUNCHER_AGENTMSG_H

#include <stdint.h>

#include "base/jobkey.h"
#include "launcher/channel.h"
#include "launcher/netif.h"
#include "launcher/wire.h"

#define PSRTI_AGENT_PROTOCOL 4

enum {
    /* agent to controller */
    PSRTI_AGENT_HELLO = 1, /* u32 protocol, u32 host, psrti_facts_t */
    PSRTI_AGENT_PROBED,    /* u64: bit i: the neighbour's address i leads to it */
    PSRTI_AGENT_OPENED, /* text job directory; of each of its tasks u32 task and each port as u32 */
    PSRTI_AGENT_FAILED, /* text; it cannot take part */
    PSRTI_AGENT_STARTED, /* u32 task, text host, u32 pid, text: what it is bound to */
    PSRTI_AGENT_OUTPUT,  /* u32 task, u8 descriptor, bytes; none: its end */
    PSRTI_AGENT_ENDED,   /* u32 task, u32 kind, u32 value, u64 time by its own clock */
    PSRTI_AGENT_GONE,    /* u32 task */
    PSRTI_AGENT_PONG,    /* u64 of the ping, u64 its own clock */

    /* controller to agent */
    PSRTI_AGENT_PROBE, /* u32 neighbour, u32 port, u32 count, that many texts: addresses */
    PSRTI_AGENT_OPEN, /* text own address; u32 count of the job's tasks, for each: text name, u32 kind,
                           u8 psrtd, u32 ports, u8 here */
    PSRTI_AGENT_START, /* u32 task, u32 attempt, each port as u32, texts argv, texts environment, text directory,
                           u64 grace, u8 virtualenv, u8 listen, u8 bind, u32 part and u32 parts */
    PSRTI_AGENT_STOP,   /* u32 task, u8 how */
    PSRTI_AGENT_SIGNAL, /* u32 task, u32 signal */
    PSRTI_AGENT_PAUSE,  /* u8 */
    PSRTI_AGENT_PING    /* u64 */
};

/* How often a side says that it lives, and how long the other may be silent: a launcher that was
 * stopped by Ctrl-Z for a moment is to find its job alive. */
#define PSRTI_AGENT_BEAT_MS 1000
#define PSRTI_AGENT_SILENT_MS 20000

/* What an agent is started with, on its standard input: never on a command line or in an
 * environment, which others can read. The end of that input ends the agent. */
typedef struct psrti_bootstrap {
    psrti_jobkey_t key;
    uint32_t host; /* into the job's hosts */
    uint64_t open_ms;
    char *directory; /* where tasks run */
    char **addresses;
    uint16_t port; /* of the controller, on all its addresses */
} psrti_bootstrap_t;

#define PSRTI_BOOTSTRAP_HEAD 12 /* bytes: a word, the length of the rest (u32) */
#define PSRTI_BOOTSTRAP_MAX 65536

void psrti_bootstrap_write(const psrti_bootstrap_t *bootstrap, psrti_wire_out_t *w);
/* Of the rest; 0: something else came. */
size_t psrti_bootstrap_length(const uint8_t head[PSRTI_BOOTSTRAP_HEAD]);
psrt_status_t psrti_bootstrap_read(const uint8_t *rest, size_t len, psrti_bootstrap_t *bootstrap);
void psrti_bootstrap_clear(psrti_bootstrap_t *bootstrap);

/* What a host has. */
typedef struct psrti_facts {
    char version[32], host[256];
    uint32_t cores, gpus;
    uint64_t memlock;         /* bytes; UINT64_MAX: unlimited */
    uint64_t wall_ns;         /* its date */
    uint32_t directory_error; /* errno; 0: it is there */
    uint16_t probe_port;      /* where it answers its neighbour */
    psrti_netif_t netifs[PSRTI_NETIF_MAX];
    size_t netif_count;
} psrti_facts_t;

void psrti_facts_gather(psrti_facts_t *facts); /* all but directory_error and probe_port */
void psrti_facts_write(const psrti_facts_t *facts, psrti_wire_out_t *w);
void psrti_facts_read(psrti_wire_in_t *r, psrti_facts_t *facts);
uint64_t psrti_wall_ns(void);

#endif
