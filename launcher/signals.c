/* SPDX-License-Identifier: Apache-2.0 */
/* What signals to the launcher mean. */
#include <signal.h>
#include <string.h>

#include "launcher/supervisor.h"

/* The first is a wish, the second an order, the third leaves the rest to the guardians. */
static void on_stop(uv_signal_t *handle, int sig)
{
    psrti_supervisor_t *s = handle->data;
    int count = ++s->signal_count;
    if (s->finished || count > 2) {
        psrti_supervisor_close(s); /* no longer waits for the reader of the output either */
    } else if (count == 1) {
        psrti_supervisor_note(s, "SIG%s: stopping the job; a second signal kills it",
                              sigabbrev_np(sig));
        psrti_supervisor_stop(s, sig, 0);
    } else {
        psrti_supervisor_kill(s);
    }
}

static void on_forward(uv_signal_t *handle, int sig)
{
    psrti_supervisor_forward(handle->data, sig);
}

static void on_show(uv_signal_t *handle, int sig)
{
    (void)sig;
    psrti_state_tell(handle->data);
}

void psrti_signals_watch(psrti_supervisor_t *s)
{
    static const struct {
        int sig;
        uv_signal_cb then;
    } rows[PSRTI_SIGNALS] = {
        { SIGINT, on_stop },     { SIGTERM, on_stop },    { SIGHUP, on_stop },
        { SIGUSR1, on_forward }, { SIGUSR2, on_forward }, { SIGQUIT, on_show },
    };
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PSRTI_SIGNALS; i++) {
        struct sigaction action;
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        /* nohup, --detach: what was ignored stays so. */
        if (!sigaction(rows[i].sig, NULL, &action) && action.sa_handler == SIG_IGN) continue;
        uv_signal_start(&s->signals[i], rows[i].then, rows[i].sig);
    }
}
