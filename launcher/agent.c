/* SPDX-License-Identifier: Apache-2.0 */
/* psrt-agent: runs the tasks of one host for a psrt-launch elsewhere. It is told all it needs on its
 * standard input, dials back, and ends with its input or its channel, whichever ends first. */
#include "launcher/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/exits.h"

#define DIALS_MAX (PSRTI_NETIF_MAX + 1)
#define LINE_MAX_LEN 512

/* One address of the controller that is tried. */
typedef struct dial {
    psrti_agent_t *agent;
    psrti_channel_t *channel; /* NULL: over */
    char address[INET6_ADDRSTRLEN];
} dial_t;

typedef struct program {
    psrti_agent_t agent;
    uv_pipe_t input;
    uv_signal_t signals[3];
    uv_timer_t deadline;
    dial_t dials[DIALS_MAX];
    size_t dial_count, open_dials;
    char tried[LINE_MAX_LEN]; /* why each address led nowhere */
    size_t tried_len;
    int watches_input;
} program_t;

static program_t program;

static void say(const char *text) { fprintf(stderr, "psrt-agent: %s\n", text); }

void psrti_agent_send(psrti_agent_t *agent, psrti_wire_out_t *w)
{
    if (agent->channel && !agent->over) psrti_channel_send(agent->channel, w->data, w->len);
    psrti_wire_clear(w);
}

void psrti_agent_end(psrti_agent_t *agent, const char *why)
{
    if (agent->over) return;
    agent->over = 1;
    agent->code = why ? PSRTI_EXIT_INTERNAL : 0;
    if (why) say(why);
    for (size_t i = 0; i < program.dial_count; i++)
        if (program.dials[i].channel) psrti_channel_abort(program.dials[i].channel);
    if (program.watches_input) uv_close((uv_handle_t *)&program.input, NULL);
    for (size_t i = 0; i < PSRTI_COUNT(program.signals); i++)
        uv_close((uv_handle_t *)&program.signals[i], NULL);
    uv_close((uv_handle_t *)&program.deadline, NULL);
    psrti_agent_probe_close(agent);
    psrti_agent_tasks_close(agent);
}

/* ---- the channel ----------------------------------------------------------------------------- */

static void say_hello(psrti_agent_t *agent)
{
    psrti_facts_t facts;
    psrti_wire_out_t w = { 0 };
    psrti_facts_gather(&facts);
    /* Tasks start where the launcher stands, unless they have a directory of their own. */
    if (chdir(agent->bootstrap.directory)) facts.directory_error = (uint32_t)errno;
    if (psrti_agent_probe_open(agent, &facts.probe_port)) say(psrt_last_error());
    psrti_wire_put_u8(&w, PSRTI_AGENT_HELLO);
    psrti_wire_put_u32(&w, PSRTI_AGENT_PROTOCOL);
    psrti_wire_put_u32(&w, agent->bootstrap.host);
    psrti_facts_write(&facts, &w);
    psrti_agent_send(agent, &w);
}

static void on_open(void *arg)
{
    dial_t *dial = arg;
    psrti_agent_t *agent = dial->agent;
    if (agent->channel) {
        psrti_channel_close(dial->channel);
        return;
    }
    agent->channel = dial->channel;
    uv_timer_stop(&program.deadline);
    for (size_t i = 0; i < program.dial_count; i++)
        if (program.dials[i].channel && program.dials[i].channel != agent->channel)
            psrti_channel_close(program.dials[i].channel);
    say_hello(agent);
}

static void pong(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_PONG);
    psrti_wire_put_u64(&w, psrti_wire_get_u64(r));
    psrti_wire_put_u64(&w, psrti_now_ns());
    psrti_agent_send(agent, &w);
}

static void on_message(void *arg, const void *data, size_t len)
{
    psrti_agent_t *agent = ((dial_t *)arg)->agent;
    psrti_wire_in_t r = { .at = data, .end = (const uint8_t *)data + len };
    if (agent->over || ((dial_t *)arg)->channel != agent->channel) return;
    switch (psrti_wire_get_u8(&r)) {
    case PSRTI_AGENT_PROBE: psrti_agent_probe_start(agent, &r); break;
    case PSRTI_AGENT_OPEN: psrti_agent_tasks_open(agent, &r); break;
    case PSRTI_AGENT_START: psrti_agent_tasks_start(agent, &r); break;
    case PSRTI_AGENT_STOP: psrti_agent_tasks_stop(agent, &r); break;
    case PSRTI_AGENT_SIGNAL: psrti_agent_tasks_signal(agent, &r); break;
    case PSRTI_AGENT_PAUSE: psrti_agent_tasks_pause(agent, psrti_wire_get_u8(&r)); break;
    case PSRTI_AGENT_PING: pong(agent, &r); break;
    default: r.bad = 1; break;
    }
    if (r.bad) psrti_agent_end(agent, "psrt-launch sent what this agent does not understand");
}

static void on_drained(void *arg)
{
    dial_t *dial = arg;
    if (dial->channel == dial->agent->channel && !dial->agent->over)
        psrti_agent_tasks_drained(dial->agent);
}

static void on_closed(void *arg, const char *why)
{
    dial_t *dial = arg;
    psrti_agent_t *agent = dial->agent;
    int was_ours = dial->channel == agent->channel;
    dial->channel = NULL;
    program.open_dials--;
    if (was_ours) {
        char text[LINE_MAX_LEN];
        agent->channel = NULL;
        snprintf(text, sizeof text, "psrt-launch at %s: %s; ending the tasks", dial->address,
                 why ? why : "closed");
        psrti_agent_end(agent, why ? text : NULL);
        return;
    }
    if (agent->over || agent->channel) return;
    psrti_append(program.tried, sizeof program.tried, &program.tried_len, "%s%s: %s",
                 program.tried_len ? "; " : "", dial->address, why ? why : "closed");
    if (program.open_dials) return;
    char text[LINE_MAX_LEN + 64];
    snprintf(text, sizeof text, "psrt-launch cannot be reached: %s", program.tried);
    psrti_agent_end(agent, text);
}

/* ---- dialling -------------------------------------------------------------------------------- */

static void dial_address(psrti_agent_t *agent, const char *address, size_t len)
{
    struct sockaddr_storage sa;
    dial_t *dial = &program.dials[program.dial_count];
    if (program.dial_count == DIALS_MAX || len >= sizeof dial->address) return;
    *dial = (dial_t){ .agent = agent };
    memcpy(dial->address, address, len);
    for (size_t i = 0; i < program.dial_count; i++)
        if (!strcmp(program.dials[i].address, dial->address)) return;
    if (!psrti_netif_sockaddr(dial->address, agent->bootstrap.port, &sa)) return;
    const psrti_channel_params_t params = {
        .loop = &agent->loop,
        .key = &agent->bootstrap.key,
        .open_ms = agent->bootstrap.open_ms,
        .beat_ms = PSRTI_AGENT_BEAT_MS,
        .silent_ms = PSRTI_AGENT_SILENT_MS,
        .events = { .open = on_open,
                    .message = on_message,
                    .drained = on_drained,
                    .closed = on_closed,
                    .arg = dial },
    };
    if (psrti_channel_dial(&params, (struct sockaddr *)&sa, &dial->channel)) return;
    program.dial_count++;
    program.open_dials++;
}

/* All at once; the first that opens is kept. Where the ssh connection comes from is most likely
 * where psrt-launch is. */
static void dial_controller(psrti_agent_t *agent)
{
    const char *ssh = getenv("SSH_CONNECTION");
    if (ssh) dial_address(agent, ssh, strcspn(ssh, " "));
    for (char **address = agent->bootstrap.addresses; *address; address++)
        dial_address(agent, *address, strlen(*address));
    if (!program.dial_count) psrti_agent_end(agent, "psrt-launch gave no address to dial");
}

static void on_deadline(uv_timer_t *timer)
{
    psrti_agent_end(timer->data, "psrt-launch did not answer in time");
}

/* ---- input and signals ----------------------------------------------------------------------- */

static int read_fully(void *buf, size_t len)
{
    for (size_t have = 0; have < len;) {
        ssize_t n = read(STDIN_FILENO, (char *)buf + have, len - have);
        if (n == 0 || (n < 0 && errno != EINTR)) return 0;
        if (n > 0) have += (size_t)n;
    }
    return 1;
}

static int read_bootstrap(psrti_bootstrap_t *bootstrap)
{
    uint8_t head[PSRTI_BOOTSTRAP_HEAD], rest[PSRTI_BOOTSTRAP_MAX];
    if (!read_fully(head, sizeof head)) {
        say("nothing came on the standard input: it is psrt-launch that starts this program");
        return 0;
    }
    size_t len = psrti_bootstrap_length(head);
    if (!len || !read_fully(rest, len)) {
        say("what came on the standard input is not from psrt-launch");
        return 0;
    }
    psrt_status_t st = psrti_bootstrap_read(rest, len, bootstrap);
    explicit_bzero(rest, sizeof rest);
    if (st) say(psrt_last_error());
    return !st;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char ignored[256];
    (void)handle, (void)suggested;
    *buf = uv_buf_init(ignored, sizeof ignored);
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    if (n < 0)
        psrti_agent_end(stream->data, "the connection that started it ended; ending the tasks");
}

static void on_signal(uv_signal_t *handle, int sig)
{
    char text[64];
    snprintf(text, sizeof text, "SIG%s; ending the tasks", sigabbrev_np(sig));
    psrti_agent_end(handle->data, text);
}

static void watch(psrti_agent_t *agent)
{
    static const int stops[] = { SIGINT, SIGTERM, SIGHUP };
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PSRTI_COUNT(stops); i++) {
        uv_signal_init(&agent->loop, &program.signals[i]);
        program.signals[i].data = agent;
        uv_signal_start(&program.signals[i], on_signal, stops[i]);
    }
    uv_timer_init(&agent->loop, &program.deadline);
    program.deadline.data = agent;
    uv_timer_start(&program.deadline, on_deadline, agent->bootstrap.open_ms, 0);
    uv_pipe_init(&agent->loop, &program.input, 0);
    program.input.data = agent;
    program.watches_input = 1;
    /* A file, which some schedulers give, has no end that says anything. */
    if (!uv_pipe_open(&program.input, STDIN_FILENO))
        uv_read_start((uv_stream_t *)&program.input, on_alloc, on_input);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int fill_standard_fds(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

static void print_help(void)
{
    fputs(
        "NAME\n"
        "    psrt-agent - run the tasks of a host for psrt-launch\n\n"
        "SYNOPSIS\n"
        "    psrt-agent [--help | --version]\n\n"
        "DESCRIPTION\n"
        "    psrt-launch starts it, by ssh or as a step of Slurm, and copies it over where it is\n"
        "    missing. It reads from its standard input where psrt-launch listens and the job's\n"
        "    key, dials back, offers ports, and runs tasks, each below a guardian. When its input\n"
        "    or the connection ends, or psrt-launch is silent for 20 seconds, it ends them all.\n\n"
        "OPTIONS\n"
        "    -h, --help\n"
        "            print this\n"
        "        --version\n"
        "            print the version\n\n"
        "EXIT STATUS\n"
        "    0 when psrt-launch ended it; 2 wrong usage; 70 otherwise, with a line on stderr.\n",
        stdout);
}

static int run(void)
{
    psrti_agent_t *agent = &program.agent;
    if (!read_bootstrap(&agent->bootstrap)) return PSRTI_EXIT_INTERNAL;
    if (uv_loop_init(&agent->loop)) {
        say("event loop: no descriptors left");
        return PSRTI_EXIT_INTERNAL;
    }
    psrti_list_init(&agent->probe.visitors);
    watch(agent);
    dial_controller(agent);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    psrti_agent_tasks_release(agent);
    uv_loop_close(&agent->loop);
    psrti_bootstrap_clear(&agent->bootstrap);
    return agent->code;
}

int main(int argc, char **argv)
{
    if (!fill_standard_fds()) return PSRTI_EXIT_INTERNAL;
    argv = uv_setup_args(argc, argv); /* guardians show a title of their own */
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return print_help(), 0;
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("psrt-agent %s\n", PSRT_VERSION_STRING), 0;
    if (argc > 1) {
        fprintf(stderr, "psrt-agent: unknown argument %s; see --help\n", argv[1]);
        return PSRTI_EXIT_USAGE;
    }
    return run();
}
