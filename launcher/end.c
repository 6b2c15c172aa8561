/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/end.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/util.h"
#include "launcher/exits.h"

int psrti_end_failed(const psrti_end_t *end)
{
    return end->kind != PSRTI_END_EXITED || end->value != 0;
}

int psrti_end_code(const psrti_end_t *end)
{
    switch (end->kind) {
    case PSRTI_END_EXITED: return end->value;
    case PSRTI_END_SIGNALED: return PSRTI_EXIT_SIGNAL + end->value;
    case PSRTI_END_CANNOT_RUN:
        return end->value == ENOENT ? PSRTI_EXIT_NOT_FOUND : PSRTI_EXIT_CANNOT_RUN;
    case PSRTI_END_NO_DIRECTORY:
    case PSRTI_END_NO_VIRTUALENV: return PSRTI_EXIT_CANNOT_RUN;
    case PSRTI_END_NOT_LAUNCHED: return PSRTI_EXIT_NOT_ASSEMBLED;
    default: return PSRTI_EXIT_SIGNAL + SIGKILL;
    }
}

void psrti_end_describe(const psrti_end_t *end, const psrti_task_t *task, int pid, const char *host,
                        uint64_t start_ns, char *buf, size_t size)
{
    size_t pos = 0;
    double after = (double)(end->time_ns - start_ns) / PSRTI_NS_PER_S;
    *buf = '\0';
    psrti_append(buf, size, &pos, "%s ", task->name);
    if (end->kind != PSRTI_END_CANNOT_RUN && end->kind != PSRTI_END_NO_DIRECTORY &&
        end->kind != PSRTI_END_NO_VIRTUALENV && end->kind != PSRTI_END_NOT_LAUNCHED)
        psrti_append(buf, size, &pos, "(pid %d) on %s ", pid, host);
    switch (end->kind) {
    case PSRTI_END_EXITED:
        psrti_append(buf, size, &pos, "exited with code %d after %.1f s", end->value, after);
        break;
    case PSRTI_END_SIGNALED:
        psrti_append(buf, size, &pos, "was killed by signal %d (%s) after %.1f s", end->value,
                     strsignal(end->value), after);
        break;
    case PSRTI_END_CANNOT_RUN:
        psrti_append(buf, size, &pos, "could not be run: %s: %s", psrti_role_program(task->role),
                     strerror(end->value));
        break;
    case PSRTI_END_NO_DIRECTORY:
        psrti_append(buf, size, &pos, "could not be run in directory %s: %s", task->role->directory,
                     strerror(end->value));
        break;
    case PSRTI_END_NO_VIRTUALENV:
        psrti_append(buf, size, &pos, "could not be run in virtual environment %s: %s",
                     task->role->virtualenv, strerror(end->value));
        break;
    case PSRTI_END_LOST:
        psrti_append(buf, size, &pos, "was lost: its guardian was killed after %.1f s", after);
        break;
    case PSRTI_END_HOST_LOST:
        psrti_append(buf, size, &pos, "%s with its host after %.1f s",
                     end->value ? "left" : "was lost", after);
        break;
    case PSRTI_END_NOT_LAUNCHED:
        psrti_append(buf, size, &pos, "did not start on %s within %.1f s", host, after);
        break;
    }
}
