/* SPDX-License-Identifier: Apache-2.0 */
/* A script for sbatch. It asks for room for the tasks, and in the allocation starts psrt-launch with the words of
 * this command line: there the same description is carried out by the backend slurm. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/render/render.h"

#define NS_PER_MINUTE (60 * PSRTI_NS_PER_S)

/* All tasks of an allocation get the same room, so it is what the greediest needs. */
typedef struct room {
    unsigned tasks, cpus, gpus;
    uint64_t mem_mb;
} room_t;

static room_t room_of(const psrti_job_t *job)
{
    room_t room = { .cpus = 1 };
    for (size_t i = 0; i < job->role_count; i++) {
        const psrti_role_t *r = &job->roles[i];
        /* The coordinator does little: it shares the room of others. */
        if (r->kind != PSRTI_KIND_COORDINATOR) room.tasks += PSRTI_MAX(r->count, r->max);
        room.cpus = PSRTI_MAX(room.cpus, (unsigned)ceil(r->cpus));
        room.gpus = PSRTI_MAX(room.gpus, r->gpus);
        room.mem_mb = PSRTI_MAX(room.mem_mb, r->mem_mb);
    }
    room.tasks = PSRTI_MAX(room.tasks, 1);
    return room;
}

psrt_status_t psrti_render_slurm(psrti_job_t *job, const psrti_render_params_t *p, FILE *out)
{
    room_t room = room_of(job);
    char *words = psrti_render_quote(p->words);
    fprintf(out, "#!/bin/bash\n#SBATCH --job-name=%s\n", job->name);
    fprintf(out, "#SBATCH --ntasks=%u\n#SBATCH --cpus-per-task=%u\n", room.tasks, room.cpus);
    if (room.mem_mb)
        fprintf(out, "#SBATCH --mem-per-cpu=%lluM\n",
                (unsigned long long)((room.mem_mb + room.cpus - 1) / room.cpus));
    if (room.gpus) fprintf(out, "#SBATCH --gpus-per-task=%u\n", room.gpus);
    if (job->timeout_ns) /* The launcher's own limit comes first, with the name of who still ran. */
        fprintf(out, "#SBATCH --time=%llu\n",
                (unsigned long long)((job->timeout_ns + job->grace_ns) / NS_PER_MINUTE + 2));
    fprintf(
        out,
        "#SBATCH --signal=B:TERM@60\n"
        "# psrt-launch starts an agent on each node; other options of sbatch may be added above.\n"
        "exec psrt-launch run --backend slurm %s\n",
        words);
    free(words);
    return PSRT_OK;
}
